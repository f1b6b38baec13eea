"""The filter on a run's system calls, as BPF made here: nothing to install, nothing to parse.

An allow-list (`syscalls.py`). Calls through another machine type's table (i386, x32) end the
process: their numbers mean other calls. A few calls are decided by their arguments.
"""

import errno
import platform
import struct
from collections.abc import Iterable

from sandbox.syscalls import AARCH64, ALLOWED, CHECKED, FOR_DRIVERS, X86_64

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15
_JUMP_GREATER = 0x25
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06

_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000

_OFFSET_NUMBER = 0
_OFFSET_MACHINE = 4
_OFFSET_ARGUMENTS = 16

_MACHINES = {"x86_64": (X86_64, 0xC000003E), "aarch64": (AARCH64, 0xC00000B7)}
_X32_BIT = 0x40000000

_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_AF_UNIX = 1
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, TCGETS2
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A)
# Types of call that push characters into a terminal or its console: TIOCSTI, TIOCLINUX
_TERMINAL_IOCTLS = (0x5412, 0x541C)
# PDEATHSIG, DUMPABLE (get), NAME, SECCOMP (get), CAPBSET (read), TIMERSLACK, NO_NEW_PRIVS, THP_DISABLE, SET_VMA
_PRCTLS = (1, 2, 3, 15, 16, 21, 23, 29, 30, 38, 39, 41, 42, 0x53564D41)

Instruction = tuple[int, int, int, int]


class UnsupportedMachine(RuntimeError):
    """There is no filter for this machine type."""


def build_filter(machine: str | None = None, *, accelerator: bool = False) -> bytes:
    """Return the filter's instructions for `machine` (default: this one).

    accelerator: a device node is shown, whose driver is driven by ioctl; then only the ioctls that
    type into a terminal are refused, and the calls in FOR_DRIVERS are allowed.
    Raises UnsupportedMachine for anything but x86_64 and aarch64.
    """
    name = machine or platform.machine()
    if name not in _MACHINES:
        raise UnsupportedMachine(f"no system-call filter for {name!r}; there is one for {', '.join(_MACHINES)}")
    column, audit_machine = _MACHINES[name]
    program: list[Instruction] = [
        (_LOAD, 0, 0, _OFFSET_MACHINE),
        (_JUMP_EQUAL, 1, 0, audit_machine),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if column == X86_64:
        program += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL_PROCESS)]
    for call, body in _argument_rules(accelerator=accelerator):
        program += _for_call(CHECKED[call][column], body)
    numbers = [pair[column] for pair in (ALLOWED | FOR_DRIVERS if accelerator else ALLOWED).values()]
    for low, high in _ranges(number for number in numbers if number is not None):
        program += [(_JUMP_AT_LEAST, 0, 2, low), (_JUMP_GREATER, 1, 0, high), (_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, _ERRNO | errno.ENOSYS))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _argument_rules(*, accelerator: bool) -> list[tuple[str, list[Instruction]]]:
    refuse_network = _ERRNO | errno.EAFNOSUPPORT
    refuse = _ERRNO | errno.EPERM
    ioctl = (
        _unless_one_of(1, _TERMINAL_IOCTLS, matched=refuse, other=_ALLOW)
        if accelerator
        else _unless_one_of(1, _IOCTLS, matched=_ALLOW, other=_ERRNO | errno.ENOTTY)
    )
    return [
        ("socket", _unless_one_of(0, (_AF_UNIX,), matched=_ALLOW, other=refuse_network)),
        ("socketpair", _unless_one_of(0, (_AF_UNIX,), matched=_ALLOW, other=refuse_network)),
        ("clone", [_argument(0), (_JUMP_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), (_RETURN, 0, 0, refuse), _allowed()]),
        ("clone3", [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]),  # its flags lie in memory, out of a filter's sight
        ("ioctl", ioctl),
        ("prctl", _unless_one_of(0, _PRCTLS, matched=_ALLOW, other=refuse)),
    ]


def _argument(index: int) -> Instruction:
    """Load the low half of an argument; the calls judged here take 32-bit values."""
    return (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index)


def _allowed() -> Instruction:
    return (_RETURN, 0, 0, _ALLOW)


def _unless_one_of(index: int, values: tuple[int, ...], *, matched: int, other: int) -> list[Instruction]:
    body: list[Instruction] = [_argument(index)]
    for value in values:
        body += [(_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, matched)]
    return [*body, (_RETURN, 0, 0, other)]


def _for_call(number: int, body: list[Instruction]) -> list[Instruction]:
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
