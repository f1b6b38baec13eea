"""What a forked child does to itself, tried in its own process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KEEPS_ONLY = """
import os, resource
from sandbox.guest.isolate import keep_only
log = os.dup(1)
os.dup2(os.open("/", os.O_RDONLY), 200)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
keep_only({0: 0, 1: log, 2: 2, 3: os.pipe()[1]})
open_ones = [fd for fd in range(1000) if os.path.exists(f"/proc/self/fd/{fd}")]
os.write(1, repr(open_ones).encode())
"""


def test_descriptors_beyond_the_lowered_limit_are_closed_too() -> None:
    done = subprocess.run([sys.executable, "-c", KEEPS_ONLY], capture_output=True, check=True, text=True)
    assert done.stdout == "[0, 1, 2, 3]"


SHOWS = """
import os, sys
from pathlib import Path
from sandbox.guest import isolate, linux
folder = Path(sys.argv[1])
linux.unshare(linux.CLONE_NEWNS)
linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
source, target = folder / "source", folder / "target"
source.mkdir(), target.mkdir()
linux.mount("none", str(source), kind="tmpfs", flags=linux.MS_NOEXEC)
isolate._show(str(source), str(target))
flags = os.statvfs(target).f_flag
print([bool(flags & one) for one in (os.ST_RDONLY, os.ST_NOSUID, os.ST_NODEV, os.ST_NOEXEC)])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts outside a user namespace")
def test_shown_files_are_read_only_and_not_executable(tmp_path: Path) -> None:
    # In a user namespace the kernel refuses a remount that would give that right back.
    done = subprocess.run([sys.executable, "-c", SHOWS, str(tmp_path)], capture_output=True, text=True, check=False)
    if "PermissionError" in done.stderr:
        pytest.skip("root without the right to mount")
    assert done.stdout.strip() == "[True, True, True, True]"
