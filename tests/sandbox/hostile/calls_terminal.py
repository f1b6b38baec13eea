# Tries to type into the operator's terminal, by every descriptor and device that there could be. Must end in: weights
import ctypes
import glob
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
IOCTL = 16
PUSH, CONSOLE, TAKE, MASTER, LINE = 0x5412, 0x541C, 0x540E, 0x80045430, 0x5423
WIDE = 1 << 32  # the kernel drops it, a careless filter compares it
DEVICES = (
    "/dev/tty",
    "/dev/console",
    "/dev/ptmx",
    "/dev/pts/*",
    "/dev/tty[0-9]*",
    "/dev/ttyS*",
    "/dev/vcs*",
    "/dev/hvc*",
)


def done(descriptor, request, argument):
    """Whether the kernel did what was asked."""
    if platform.machine() != "x86_64":
        return LIBC.ioctl(descriptor, ctypes.c_ulong(request), argument) != -1
    wide = ctypes.c_long(IOCTL), ctypes.c_long(descriptor), ctypes.c_ulong(request)
    return LIBC.syscall(*wide, argument) != -1


def unlearning(net, retain, forget, validation):
    opened, reached = list(range(64)), []
    for pattern in DEVICES:
        for path in glob.glob(pattern):
            for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
                try:
                    opened.append(os.open(path, flags | os.O_NOCTTY | os.O_NONBLOCK))
                except OSError:
                    continue
                if path != "/dev/ptmx" and not path.startswith("/dev/pts/"):
                    reached.append(path)
    for leads in (False, True):
        if leads and os.fork() == 0:  # a leader of a session may take a terminal
            try:
                os.setsid()
                taken = [number for number in opened if done(number, TAKE, ctypes.c_long(1))]
                os._exit(bool(taken))
            finally:
                os._exit(2)
        for number in opened:
            for request in (PUSH, CONSOLE, LINE, PUSH | WIDE, CONSOLE | WIDE):
                for letter in (b"x", b"\x02", b"\x03", b"\x0b"):
                    if done(number, request, ctypes.c_char_p(letter)):
                        reached.append(f"{number} {request:x}")
        if leads and os.waitstatus_to_exitcode(os.wait()[1]) != 0:
            reached.append("a terminal of its own")
    if reached:
        raise AssertionError(f"breach: {reached}")
