"""The filter on a run's system calls, as BPF made here: nothing to install, nothing to parse.

An allow-list (`syscalls.py`). Calls through another machine type's table (i386, x32) end the
process: their numbers mean other calls. A few calls are decided by their arguments.

Runs that stand side by side have the host's files in common (libraries, the data), and what the kernel keeps with a
file would be a wire between them: locks, leases, notices, whether a page is in memory. So a lock is answered as taken
and is not: nobody else shares a run's own files. Advice that changes what is in memory is answered alike, and so is the
wish that a file be on disk: a run's own files never are, and a sync of the host's can flush its disk.
"""

import errno
import platform
import struct
from collections.abc import Iterable, Mapping

from sandbox.syscalls import AARCH64, ALLOWED, CHECKED, FOR_DRIVERS, X86_64

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15
_JUMP_GREATER = 0x25
_MIN_JUMP = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06

_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_PRETEND = _ERRNO  # error 0: the call says that it went well, and nothing was done

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
# DUPFD, GETFD, SETFD, GETFL, SETFL, DUPFD_CLOEXEC, GETPIPE_SZ, ADD_SEALS, GET_SEALS; GETLK and its OFD form, which
# answer truly that nobody holds a lock, since no run can. Not leases and notices of what others do with a file or
# folder, nor larger pipes, whose pages are counted for all processes of a user.
_FCNTLS = (0, 1, 2, 3, 4, 5, 36, 1030, 1032, 1033, 1034)
# SETLK, SETLKW, each also in its OFD form
_FCNTL_LOCKS = (6, 7, 37, 38)
# MERGEABLE (with equal pages of other runs), COLD, PAGEOUT, COLLAPSE (of a file's shared pages)
_SHARED_ADVICE = (12, 20, 21, 25)
# FREE: makes pages inactive that runs share, which later ones read in numa_maps. Refused, allocators take DONTNEED.
_LAZY_FREE = 8
# REUSEADDR, SNDBUF, RCVBUF, KEEPALIVE, LINGER, PASSCRED, RCVLOWAT, RCVTIMEO, SNDTIMEO (these two with wide times too).
# Not the options that hand the kernel a program.
_SOCKET_OPTIONS = (2, 7, 8, 9, 13, 16, 18, 20, 21, 66, 67)
_OUT_OF_BAND = 1  # MSG_OOB, which no ordinary program asks of a unix socket, and whose code there had holes
_RLIMIT_CORE = 4
_MAP_HUGETLB = 0x40000  # pages that the host has put aside: no control group of memory counts them
_MFD_HUGETLB = 4  # the same pages, by a file that mmap takes without that flag
_MS_SYNC = 4  # without it msync writes nothing, and libraries ask with it whether an address is mapped

Instruction = tuple[int, int, int, int]


class UnsupportedMachine(RuntimeError):
    """There is no filter for this machine type."""


def build_filter(machine: str | None = None, *, accelerator: bool = False) -> bytes:
    """Return the filter's instructions for `machine` (default: this one).

    accelerator: a device node is shown, whose driver is driven by ioctl; then only the ioctls that
    type into a terminal are refused, and the calls in FOR_DRIVERS are allowed, but none of the host's huge pages.
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
        program += [(_MIN_JUMP, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL_PROCESS)]
    for call, body in _argument_rules(accelerator=accelerator):
        program += [(_JUMP_EQUAL, 0, len(body), (CHECKED | FOR_DRIVERS)[call][column]), *body]
    numbers = [pair[column] for pair in ALLOWED.values()]
    for low, high in _ranges(number for number in numbers if number is not None):
        program += [(_MIN_JUMP, 0, 2, low), (_JUMP_GREATER, 1, 0, high), (_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, _ERRNO | errno.ENOSYS))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _argument_rules(*, accelerator: bool) -> list[tuple[str, list[Instruction]]]:
    refuse = _ERRNO | errno.EPERM
    ioctls = dict.fromkeys(_TERMINAL_IOCTLS, refuse) if accelerator else dict.fromkeys(_IOCTLS, _ALLOW)
    fcntls = {**dict.fromkeys(_FCNTLS, _ALLOW), **dict.fromkeys(_FCNTL_LOCKS, _PRETEND)}
    advice = {**dict.fromkeys(_SHARED_ADVICE, _PRETEND), _LAZY_FREE: _ERRNO | errno.EINVAL}
    unix_only = _by_value(0, {_AF_UNIX: _ALLOW}, other=_ERRNO | errno.EAFNOSUPPORT)
    for_drivers = [("memfd_create", _unless_any_bit(1, _MFD_HUGETLB, refuse))] if accelerator else []
    flags_of = {"sendto": 3, "recvfrom": 3, "sendmsg": 2, "recvmsg": 2, "sendmmsg": 3, "recvmmsg": 3}
    return [
        ("socket", unix_only),
        ("socketpair", unix_only),
        ("clone", _unless_any_bit(0, _NAMESPACE_FLAGS, refuse)),
        ("clone3", _always(_ERRNO | errno.ENOSYS)),  # its flags lie in memory, out of a filter's sight
        ("ioctl", _by_value(1, ioctls, other=_ALLOW if accelerator else _ERRNO | errno.ENOTTY)),
        ("prctl", _by_value(0, dict.fromkeys(_PRCTLS, _ALLOW), other=refuse)),
        ("fcntl", _by_value(1, fcntls, other=refuse)),
        ("flock", _always(_PRETEND)),
        *((call, _always(_PRETEND)) for call in ("fadvise64", "fsync", "fdatasync", "sync_file_range")),
        ("msync", _unless_any_bit(2, _MS_SYNC, _PRETEND)),
        ("mmap", _unless_any_bit(3, _MAP_HUGETLB, _ERRNO | errno.ENOMEM)),
        ("madvise", _by_value(2, advice, other=_ALLOW)),
        ("setrlimit", _by_value(0, {_RLIMIT_CORE: refuse}, other=_ALLOW)),
        ("prlimit64", _unless_it_sets_the_core_limit(refuse)),
        ("setsockopt", _by_value(2, dict.fromkeys(_SOCKET_OPTIONS, _ALLOW), other=_ERRNO | errno.ENOPROTOOPT)),
        *((call, _unless_any_bit(index, _OUT_OF_BAND, refuse)) for call, index in flags_of.items()),
        *for_drivers,
    ]


def _argument(index: int, *, high: bool = False) -> Instruction:
    """Load half of an argument. Most calls judged here take 32-bit values, which the low half holds."""
    return (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index + 4 * high)


def _always(answer: int) -> list[Instruction]:
    return [(_RETURN, 0, 0, answer)]


def _by_value(index: int, answers: Mapping[int, int], *, other: int) -> list[Instruction]:
    body: list[Instruction] = [_argument(index)]
    for value, answer in answers.items():
        body += [(_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, answer)]
    return [*body, (_RETURN, 0, 0, other)]


def _unless_any_bit(index: int, bits: int, answer: int) -> list[Instruction]:
    return [_argument(index), (_JUMP_ANY_BIT, 0, 1, bits), (_RETURN, 0, 0, answer), (_RETURN, 0, 0, _ALLOW)]


def _unless_it_sets_the_core_limit(refuse: int) -> list[Instruction]:
    """Answer prlimit64: reading that limit, a call without a new one, is allowed as all else."""
    return [
        _argument(1),
        (_JUMP_EQUAL, 0, 5, _RLIMIT_CORE),
        _argument(2),
        (_JUMP_EQUAL, 0, 2, 0),
        _argument(2, high=True),
        (_JUMP_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
