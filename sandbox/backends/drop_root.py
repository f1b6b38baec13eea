"""Turns from root into a slot's user on the way to bubblewrap. Run as a program, never imported.

A dropped user may have no way to the interpreter or to the data by name: either may lie below a
private folder. So root, in its own mount namespace, shows each under a numbered neutral name
first. The launcher's own process is untouched.

    python -m sandbox.backends.drop_root --uid 60800 --show PATH --show PATH --exec /tmp/1/bwrap -- bwrap ...
"""

import argparse
import os
from pathlib import Path

from sandbox.guest import linux

SHOWN = "/tmp"  # noqa: S108 - covered by a fresh tmpfs in this process's own mount namespace


def shown_path(number: int) -> str:
    """Return where the `number`-th shown file or folder will lie."""
    return f"{SHOWN}/{number}"


def main() -> None:
    """Show, drop, and become the named program with an empty environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uid", type=int, required=True)
    parser.add_argument("--exec", required=True, dest="program")
    parser.add_argument("--show", action="append", default=[])
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    fds = [os.open(path, os.O_PATH) for path in arguments.show]  # before the next line may cover some of them
    linux.mount("none", SHOWN, kind="tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, options="mode=0755,size=1m")
    for number, fd in enumerate(fds):
        _show(fd, Path(shown_path(number)))
    os.setgroups([])
    os.setresgid(arguments.uid, arguments.uid, arguments.uid)
    os.setresuid(arguments.uid, arguments.uid, arguments.uid)
    os.execve(arguments.program, arguments.command, {})  # noqa: S606 - becoming it is the point


def _show(fd: int, target: Path) -> None:
    source = Path(f"/proc/self/fd/{fd}")
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    linux.mount(str(source), str(target), flags=linux.MS_BIND | linux.MS_REC)
    os.close(fd)


if __name__ == "__main__":
    main()
