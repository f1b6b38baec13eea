"""Mounts that hang nowhere, to be handed to a process in other namespaces: read-only copies of folders of the host.

Root makes them itself. Others may mount in a user namespace of their own alone, so this module is run as a program
that enters one:

    python -m sandbox.backends.detached_mounts --socket FD PATH ...
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import sandbox
from sandbox.guest import linux

_MAX_MOUNTS = 16
_TIMEOUT_S = 60.0


def detach(stack: ExitStack, folders: Sequence[Path]) -> tuple[int, ...]:
    """Return a descriptor of a read-only mount of each folder, open as long as the stack; none where that cannot be.

    Kernels before 5.12 and some containers' filters do not let anybody.
    """
    with ExitStack() as made:  # closes those of a series that could not be completed
        try:
            fds = _make(made, folders) if os.geteuid() == 0 else _from_program(folders, made)
        except OSError:
            return ()
        stack.push(made.pop_all())
    return tuple(fds)


def _make(made: ExitStack, folders: Sequence[Path]) -> list[int]:
    fds: list[int] = []
    for folder in folders:
        fds.append(linux.detach_copy(str(folder)))
        made.callback(os.close, fds[-1])
    return fds


def _from_program(folders: Sequence[Path], made: ExitStack) -> list[int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            command = [sys.executable, "-P", "-s", "-S", "-m", "sandbox.backends.detached_mounts"]
            process = subprocess.Popen(
                [*command, "--socket", str(theirs.fileno()), *map(str, folders)],
                env={"PYTHONPATH": str(Path(next(iter(sandbox.__path__))).parent)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        ours.settimeout(_TIMEOUT_S)
        try:
            _message, fds, _flags, _address = socket.recv_fds(ours, 1, _MAX_MOUNTS)
        finally:
            process.kill()  # it has sent them, or never will
            process.wait()
    for fd in fds:
        made.callback(os.close, fd)
    if len(fds) != len(folders):
        raise OSError("the kernel gives this user no such mounts")
    return fds


def main() -> None:
    """Send the mounts of the named folders over the socket."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("folders", nargs="+")
    arguments = parser.parse_args()
    with contextlib.suppress(OSError):
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        fds = [linux.detach_copy(folder) for folder in arguments.folders]
        socket.send_fds(socket.socket(fileno=arguments.socket), [b"m"], fds)


if __name__ == "__main__":
    main()
