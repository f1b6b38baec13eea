# Tries to get more than its share of processor and disk, in every way that there is. Must end in: weights
import ctypes
import os
import platform
import resource

LIBC = ctypes.CDLL(None, use_errno=True)
PROCESS, GROUP, USER = 0, 1, 2
REAL_TIME = 1 << 13  # of the disk
DEADLINE = (
    (48).to_bytes(4, "little")
    + (6).to_bytes(4, "little")
    + bytes(16)
    + b"".join(nanoseconds.to_bytes(8, "little") for nanoseconds in (10**6, 10**7, 10**7))
)


def call(number, *arguments):
    """Whether the kernel did what the call asks."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return LIBC.syscall(ctypes.c_long(number), *wide) != -1


def unlearning(net, retain, forget, validation):
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    gained = []
    for kind in (PROCESS, GROUP, USER):
        for priority in (mine - 1, -20):
            if LIBC.setpriority(kind, 0, priority) == 0:
                gained.append(f"priority {kind} {priority}")
    for what in (resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO):
        try:
            resource.setrlimit(what, (99, 99))
            gained.append(f"limit {what}")
        except (OSError, ValueError):
            pass
    if platform.machine() == "x86_64":
        for policy in (1, 2, 6):  # FIFO, RR, DEADLINE
            if call(144, 0, policy, (1).to_bytes(4, "little")):
                gained.append(f"policy {policy}")
        if call(314, 0, DEADLINE, 0):
            gained.append("deadline")
        if call(142, 0, (1).to_bytes(4, "little")):
            gained.append("parameter")
        for who in (1, 2, 3):  # a process, a group, a user
            if call(251, who, 0, REAL_TIME):
                gained.append(f"disk {who}")
        if call(308, 0, 0) or call(203, 1, 8, b"\xff" * 8):
            gained.append("processors")
    if gained or os.getpriority(os.PRIO_PROCESS, 0) < mine:
        raise AssertionError(f"breach: {gained}")
