# Tries to become root or another, and to take rights back, by every call for that. Must end in: weights
import ctypes
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"setuid": 105, "setgid": 106, "setreuid": 113, "setregid": 114, "setgroups": 116, "setresuid": 117}
NUMBERS |= {"setresgid": 119, "setfsuid": 122, "setfsgid": 123, "capset": 126}
HEADER = (0x20080522).to_bytes(4, "little") + bytes(4)
AMBIENT, RAISE, KEEP, SECUREBITS = 47, 2, 8, 28


def refused(number, *arguments):
    """Whether the kernel turned the call away (EPERM, EACCES or ENOSYS) rather than looked at its arguments."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return LIBC.syscall(ctypes.c_long(number), *wide) == -1 and ctypes.get_errno() in (1, 13, 38)


def unlearning(net, retain, forget, validation):
    before = os.getresuid(), os.getresgid(), os.getgroups()
    taken = []
    if platform.machine() == "x86_64":
        for name, number in NUMBERS.items():
            for who in (0, 1, 65534):
                arguments = (HEADER, b"\xff" * 24) if name == "capset" else (who, who, who)
                if not refused(number, *arguments):
                    taken.append(f"{name} {who}")
    for capability in range(41):
        if LIBC.prctl(AMBIENT, RAISE, capability, 0, 0) == 0:
            taken.append(f"ambient {capability}")
    if LIBC.prctl(SECUREBITS, 1, 0, 0, 0) == 0:
        taken.append("secure bits")
    LIBC.prctl(KEEP, 1, 0, 0, 0)
    if taken or before != (os.getresuid(), os.getresgid(), os.getgroups()):
        raise AssertionError(f"breach: {taken}")
