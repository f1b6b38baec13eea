"""A user, a network and an /etc of their own for a command, and what its user has left outside its folder."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from scripts.test_fresh_checkout.situations import LOOPBACK_UP, OWN_NETWORK

STRANGER, STRANGER_ID = "lethe-stranger", 60_791


def inside(command: list[str], *, home: Path, network: bool, as_user: bool) -> list[str]:
    """Return the command that runs this one as asked. home: the stranger's, in a folder that this may write to."""
    inner = command
    if as_user:
        inner = ["setpriv", f"--reuid={STRANGER_ID}", f"--regid={STRANGER_ID}", "--clear-groups", "--", *inner]
    steps = [] if network else [LOOPBACK_UP]
    if os.geteuid() == 0:
        steps += [*_stranger_known(home), *(_python_reachable() if as_user else [])]
        own = ["unshare", "--mount", *([] if network else ["--net"])]
    elif network:
        return inner
    else:
        own = list(OWN_NETWORK)
    return [*own, "sh", "-euc", "\n".join([*steps, 'exec "$@"']), "sh", *inner]


def _stranger_known(home: Path) -> list[str]:
    """Return the steps that give the stranger an account, in this run's own view of /etc."""
    steps = []
    lines = {
        "passwd": f"{STRANGER}:x:{STRANGER_ID}:{STRANGER_ID}::{home}:/bin/sh",
        "group": f"{STRANGER}:x:{STRANGER_ID}:",
    }
    for name, line in lines.items():
        copy = home.parent / name
        copy.write_text(Path("/etc", name).read_text() + line + "\n")
        steps.append(f"mount --bind {shlex.quote(str(copy))} /etc/{name}")
    return steps


def _python_reachable() -> list[str]:
    """Return the steps that show just the interpreter where it lies in a folder closed to others, such as /root."""
    base = Path(sys.base_prefix)
    closed = [parent for parent in base.parents if not parent.stat().st_mode & 0o001]
    if not closed:
        return []
    place, kept, over = (shlex.quote(str(path)) for path in (base, "/mnt", closed[-1]))
    return [
        f"mount --bind {place} {kept}",
        f"mount -t tmpfs -o mode=755,size=1m none {over}",
        f"mkdir -p {place}",
        f"mount --bind {kept} {place}",
        f"umount {kept}",
    ]


def files_left() -> list[str]:
    """Return what the stranger left in common folders; pytest keeps the folders of its last runs, to be looked at."""
    common = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - where others' files lie
    found = [path for folder in common if folder.is_dir() for path in folder.iterdir() if _is_strangers(path)]
    names = [str(path) for path in found if not path.name.startswith("pytest-of-")]
    for path in found:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    return names


def _is_strangers(path: Path) -> bool:
    try:
        return path.lstat().st_uid == STRANGER_ID
    except FileNotFoundError:
        return False
