"""The few kernel calls that Python 3.11 does not offer. Linux only, by ctypes, no other module needed."""

import ctypes
import os
import resource

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on every machine
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4

_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_TSYNC = 1
_LAST_CAPABILITY_TO_TRY = 63
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace"))


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the named namespaces for fresh ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, *, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount; empty strings stand for none."""
    _check(
        _libc.mount(
            source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
        ),
        f"mount {kind or 'bind'} on {target}",
    )


def detach_copy(path: str) -> int:
    """Return a descriptor of a copy of what is mounted at and below `path`: read-only, private, hanging nowhere.

    It goes with its last descriptor, unless somebody mounts it. Raises OSError, also from kernels before 5.12.
    """
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    fd = _libc.syscall(ctypes.c_long(_OPEN_TREE), ctypes.c_int(_AT_FDCWD), os.fsencode(path), ctypes.c_uint(flags))
    _check(min(fd, 0), f"open_tree {path}")
    flags = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
    attributes = _MountAttributes(set=flags, propagation=MS_PRIVATE)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(fd),
        b"",
        ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    try:
        _check(result, f"mount_setattr {path}")
    except OSError:
        os.close(fd)
        raise
    return int(fd)


def move_mount(fd: int, target: str) -> None:
    """Mount what `detach_copy` returned, in whatever process."""
    result = _libc.syscall(
        ctypes.c_long(_MOVE_MOUNT),
        ctypes.c_int(fd),
        b"",
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
    )
    _check(result, f"move_mount on {target}")


def touch(address: int, length: int) -> None:
    """Mark pages as used (MADV_POPULATE_READ, Linux 5.14 or newer); a no-op elsewhere."""
    _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), ctypes.c_int(22))


def collapse(address: int, length: int) -> None:
    """Put memory on a huge page (MADV_COLLAPSE, Linux 6.1 or newer) where there is one free; a no-op elsewhere."""
    _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), ctypes.c_int(25))


def split(address: int) -> None:
    """Map a huge page as small ones, in this process: a part of it becomes an area of its own (MADV_DONTDUMP)."""
    _libc.madvise(ctypes.c_void_p(address + resource.getpagesize()), ctypes.c_size_t(1), ctypes.c_int(16))


def set_hostname(name: str) -> None:
    """Name the machine of the current UTS namespace."""
    _check(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def _prctl(option: int, *values: int) -> int:
    padded = (*values, 0, 0, 0, 0)[:4]
    return int(_libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(value) for value in padded)))


def become_subreaper() -> None:
    """Receive the orphans of this process's descendants."""
    _check(_prctl(_PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)")


def forbid_new_privileges() -> None:
    """Make set-uid files and file capabilities powerless from here on."""
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "prctl(PR_SET_NO_NEW_PRIVS)")


def drop_capabilities() -> None:
    """Give up every capability, for this process and all that it starts."""
    for capability in range(_LAST_CAPABILITY_TO_TRY + 1):
        if _prctl(_PR_CAPBSET_DROP, capability) != 0:
            break  # past the last one this kernel knows
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), data), "capset")


def load_seccomp(program: bytes) -> None:
    """Load a filter made of eight-byte instructions, for every thread that there is; there is no way back.

    Libraries start threads of their own when they are loaded, and a call made in one of them would go unjudged.
    Raises OSError where not every thread has it.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = _SockFprog(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    call = ctypes.c_long(_SECCOMP_CALL[os.uname().machine])
    mode, flags = ctypes.c_long(_SECCOMP_SET_MODE_FILTER), ctypes.c_long(_SECCOMP_FILTER_FLAG_TSYNC)
    result = int(_libc.syscall(call, mode, flags, ctypes.byref(fprog)))
    if result > 0:
        raise OSError(f"seccomp: the filter was loaded for no thread, since thread {result} cannot take it")
    _check(result, "seccomp")
