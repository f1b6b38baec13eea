"""An instance that is told to end takes with it what it started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# As `lethe demo` does: SIGTERM comes while it works, not while it waits for one.
PROGRAM = """
import time
from server.config import get_settings
from server.embedded.instance import running
with running(get_settings(), worker=False) as instance:
    print(instance.url, flush=True)
    time.sleep(600)
"""


def find_processes(home: Path) -> set[int]:
    """Return the processes that name the folder in their arguments or environment, this one left out."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if str(home).encode() in text:
                found.add(int(folder.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_instance_that_is_ended_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    environment = os.environ | {"LETHE_HOME": str(home), "LETHE_PORT": "0"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"http://")
        assert len(find_processes(home)) >= 3, "itself, Redis and the web server"
        process.send_signal(number)
        process.wait(timeout=60)
    deadline = time.monotonic() + 30
    while find_processes(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert find_processes(home) == set()
