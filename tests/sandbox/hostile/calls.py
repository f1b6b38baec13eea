"""System calls that a run must not reach. Numbers are those of x86-64; elsewhere nothing is tried by them."""

import ctypes
import errno
import fcntl
import glob
import mmap
import os
import platform
import resource
import signal
import socket
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
ON_X86 = platform.machine() == "x86_64"
# Calls with arguments that the kernel itself would refuse with another error.
REFUSED = {
    "leave a key for the next run": (248, b"lethe-no-such-type", b"lethe", b"x", 1, -4),
    "run on processors that are not its own": (203, 0, 8, b"\xff" * 8),
    "use up the machine-wide quota of asynchronous requests": (206, 1, 0),
    "load a program into the kernel": (321, 0, 0, 0),
    "change the root of this process": (161, b"/"),
    "set the machine's clock": (227, 0, 0),
    "watch the host's files": (300, 0, 0),
    "rename the machine": (170, 0, -1),
    "make system calls past the filter through io_uring": (425, 1, 0),
    "read the kernel's log": (103, 3, 0, 0),
    "use the kernel's key rings, which namespaces do not part": (250, 0, -4, 0, 0, 0),
    "keep bytes in a file without a limit": (319, b"lethe", 0),
    "hide memory from the host": (447, 0),
    "make a device node": (133, b"/scratch/mem", 0o20600, 0x101),
    "change the processor's tables": (154, 0, 0, 0),
    "load a kernel module": (175, 0, 0, 0),
    "mount a file system": (165, 0, 0, 0, 0, 0),
    "move a mount": (429, -1, b"", -1, b"", 0),
    "mount through the newer calls": (428, -100, b"/", 1),
    "open a file by its number, past every path": (304, -1, 0, 0),
    "watch the machine through performance counters": (298, 0, 0, -1, -1, 0),
    "turn off address randomisation": (135, 0x0040000),
    "take a descriptor out of another process": (438, -1, 0, 0),
    "change the root": (155, b"/", b"/"),
    "leave a message queue behind": (240, b"lethe", 0o102, 0o600, 0),
    "read another process's memory": (310, 2, 0, 0, 0, 0, 0),
    "trace another process": (101, 16, 2, 0, 0),
    "take a processor for itself": (144, 0, 1, b"\x63\0\0\0"),
    "enter another namespace": (308, -1, 0),
    "move pages between files inside the kernel": (275, -1, 0, -1, 0, 0, 0),
    "use a file as swap": (167, 0, 0),
    "flood the host's disks with syncs": (162,),
    "leave shared memory behind": (29, 0, 4096, 0o1600),
    "uncover what lies below a mount": (166, b"/stage", 2),
    "make namespaces of its own": (272, 0x10000000),
    "hold the kernel at a page fault": (323, 0),
    "fork into a namespace of its own": (56, 0x10000000 | 17, 0, 0, 0, 0),
    "fork through the newer call": (435, 0, 0),
}


def call(number, *arguments):
    """Return the answer and the error number."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return LIBC.syscall(ctypes.c_long(number), *wide), ctypes.get_errno()


def refused(number, *arguments):
    """Whether the kernel turned the call away (EPERM, EACCES or ENOSYS) rather than looked at its arguments."""
    answer, error = call(number, *arguments)
    return answer == -1 and error in (1, 13, 38)


def calls_refused(*_):
    """Tries to make calls of which each one would do harm. Must end in: weights"""
    through = [what for what, wanted in REFUSED.items() if ON_X86 and not refused(*wanted)]
    assert not through, through


EXECUTED = {
    "getpid": "b814000000cd80c3",  # mov eax, 20; int 0x80; ret
    "fork": "b802000000cd80c3",
    "socketcall": "b866000000bb0100000031c9cd80c3",
    "ptrace": "b81a00000031dbcd80c3",
    "setuid": "b81700000031dbcd80c3",
    "mount": "b81500000031dbcd80c3",
    "clone": "b878000000bb00000010cd80c3",  # a user namespace
    "no such call": "b8ffff0000cd80c3",
}
X32 = 0x40000000
PERSONALITY = 135


def execute(code):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex(code))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()


def ended_by(attempt):
    """Return the signal that ended a process which made this attempt; 0 if it lived."""
    child = os.fork()
    if child == 0:
        try:
            attempt()
        finally:
            os._exit(0)
    return -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def calls_compat(*_):
    """Tries to use other tables of calls, each way in a child. Must end in: weights"""
    if not ON_X86:
        return
    through = [name for name, code in EXECUTED.items() if ended_by(lambda code=code: execute(code)) == 0]
    for number in (0, 2, 39, 41, 57, 101, 105, 165, 272, 512, 520, 534, 547, 0x3FFFFFFF):
        if ended_by(lambda number=number: call(X32 | number, 0, 0, 0)) != signal.SIGSYS:
            through.append(f"x32 {number}")
    for persona in (0x0008, 0x0040000, 0x0400000):  # a 32-bit machine's, no randomisation, readable is executable
        if call(PERSONALITY, persona)[0] != -1:
            through.append(f"personality {persona:x}")
    assert not through, through


def calls_i386(*_):
    """Tries to call through the 32-bit table, whose numbers mean other calls. Must end in: killed"""
    execute(EXECUTED["getpid"])


def calls_x32(*_):
    """Tries to call through the x32 table. Must end in: killed"""
    call(X32 | 39)


def calls_core_dump(*_):
    """Tries to leave a core dump with the data in it on the host. Must end in: killed"""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))
    except (OSError, ValueError):
        ctypes.string_at(0)


def calls_core_limit(*_):
    """Tries to have the kernel hand its core dumps to the host's own program again. Must end in: weights"""
    assert resource.getrlimit(resource.RLIMIT_CORE) in ((1, 1), (0, 0))  # 0 only where the host forbids more
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError):
        return
    raise AssertionError


def calls_file_sync(*_):
    """Tries to have the host put its own files on disk, which empties its disk's cache. Must end in: weights"""
    with open("/data/network.json") as file:
        os.fsync(file)  # ordinary code may ask
    no_file = 10**6  # only a kernel that looks at it can say so
    assert (LIBC.fsync(no_file), LIBC.fdatasync(no_file), LIBC.sync_file_range(no_file, 0, 0, 2)) == (0, 0, 0)
    assert not LIBC.msync(ctypes.c_void_p(1), ctypes.c_size_t(1), 4)  # no page begins there


def calls_huge_pages(*_):
    """Tries to take the huge pages that the host has put aside, which no memory limit counts. Must end in: weights"""
    huge, failed = 0x40000, ctypes.c_void_p(-1).value
    LIBC.mmap.restype = ctypes.c_void_p
    # A host that has none answers alike; a length that is not one of pages tells them apart: it is refused first.
    for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
        for size in (0, 2 << 20):
            got = LIBC.mmap(None, ctypes.c_size_t(size), 3, flags | mmap.MAP_ANONYMOUS | huge, -1, ctypes.c_long(0))
            # the kernel's own answer to no length is EINVAL
            assert (got, ctypes.get_errno()) == (failed, errno.ENOMEM)


def calls_locks(*_):
    """Tries to lock a file of the host's, for a run beside it to see. Must end in: weights"""
    with open("/data/network.json") as one, open("/data/network.json") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where the first is a real one
        wanted = struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 1, 0)
        fcntl.fcntl(one, fcntl.F_OFD_SETLK, wanted)
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0)
        held, *_ = struct.unpack("hhqqi4x", fcntl.fcntl(other, fcntl.F_OFD_GETLK, asked))
        assert held == fcntl.F_UNLCK


def calls_new_filter(*_):
    """Tries to replace the filter by one of its own. Must end in: weights"""
    assert LIBC.prctl(22, 2, 0, 0, 0) != 0


def error_of(attempt, *arguments):
    """Return the number of the error that it raised; 0 if it raised none."""
    try:
        attempt(*arguments)
    except OSError as error:
        return error.errno
    return 0


def calls_notices(*_):
    """Tries to be told what others do in the host's folders, and to hold leases there. Must end in: weights"""
    notify, set_lease, set_owner, set_pipe_size = 1026, 1024, 8, 1031
    folder, file = os.open("/data", os.O_RDONLY), os.open("/scratch/own", os.O_RDWR | os.O_CREAT)
    attempts = [(folder, notify, 1), (file, set_lease, 1), (file, set_owner, 1), (os.pipe()[0], set_pipe_size, 1 << 20)]
    assert [error_of(fcntl.fcntl, *attempt) for attempt in attempts] == [errno.EPERM] * 4


def calls_page_cache(*_):
    """Tries to ask and to change which pages of the host's files are in memory. Must end in: weights"""
    if not ON_X86:
        return
    no_wait, page_out, no_such_advice, preadv2, readahead, mincore = 8, 21, 99, 327, 187, 27
    file = os.open("/data/network.json", os.O_RDONLY)
    for wanted in ((preadv2, file, 0, 0, 0, 0, no_wait), (readahead, file, 0, 4096), (mincore, 0, 0, 0)):
        assert call(*wanted) == (-1, errno.ENOSYS)
    os.posix_fadvise(file, 0, 0, no_such_advice)  # raises where a kernel looks at it
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as view:
        view.madvise(page_out, 0, 1)
    assert LIBC.madvise(ctypes.c_void_p(1), ctypes.c_size_t(1), page_out) == 0  # no page begins there


def calls_priority(*_):
    """Tries to get more than its share of processor and disk, in every way that there is. Must end in: weights"""
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    tried = [(kind, 0, priority) for kind in range(3) for priority in (mine - 1, -20)]  # a process, a group, a user
    gained = [wanted for wanted in tried if LIBC.setpriority(*wanted) == 0]
    for what in (resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO):
        try:
            resource.setrlimit(what, (99, 99))
            gained.append(f"limit {what}")
        except (OSError, ValueError):
            pass
    if ON_X86:
        one, real_time_of_the_disk = (1).to_bytes(4, "little"), 1 << 13
        deadline = struct.pack("<II16xQQQ", 48, 6, 10**6, 10**7, 10**7)
        wanted = [(144, 0, policy, one) for policy in (1, 2, 6)]  # FIFO, RR, DEADLINE
        wanted += [(314, 0, deadline, 0), (142, 0, one), (308, 0, 0), (203, 1, 8, b"\xff" * 8)]
        wanted += [(251, who, 0, real_time_of_the_disk) for who in (1, 2, 3)]  # a process, a group, a user
        gained += [one for one in wanted if call(*one)[0] != -1]
    assert not gained, gained
    assert os.getpriority(os.PRIO_PROCESS, 0) >= mine


def calls_setuid(*_):
    """Tries to become root or another, and to take rights back, by every call for that. Must end in: weights"""
    numbers = {"setuid": 105, "setgid": 106, "setreuid": 113, "setregid": 114, "setgroups": 116, "setresuid": 117}
    numbers |= {"setresgid": 119, "setfsuid": 122, "setfsgid": 123, "capset": 126}
    ambient, raised, keep, secure_bits = 47, 2, 8, 28
    before = os.getresuid(), os.getresgid(), os.getgroups()
    taken = []
    for name, number in numbers.items() if ON_X86 else ():
        for who in (0, 1, 65534):
            header = (0x20080522).to_bytes(4, "little") + bytes(4)
            if not refused(number, *((header, b"\xff" * 24) if name == "capset" else (who, who, who))):
                taken.append(f"{name} {who}")
    taken += [capability for capability in range(41) if LIBC.prctl(ambient, raised, capability, 0, 0) == 0]
    if LIBC.prctl(secure_bits, 1, 0, 0, 0) == 0:
        taken.append("secure bits")
    LIBC.prctl(keep, 1, 0, 0, 0)
    assert not taken, taken
    assert before == (os.getresuid(), os.getresgid(), os.getgroups())


def calls_socket_options(*_):
    """Tries to hand the kernel a program through a socket, and to use its out-of-band data. Must end in: weights"""
    one, other = socket.socketpair()
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))  # let all pass
    described = struct.pack("HxxxxxxP", 1, ctypes.addressof(program))
    for attach in (26, 51):  # a filter, one of shared ports
        assert error_of(one.setsockopt, socket.SOL_SOCKET, attach, described) == errno.ENOPROTOOPT
    calls = [(one.send, b"x", socket.MSG_OOB), (one.sendmsg, [b"x"], [], socket.MSG_OOB)]
    calls += [(other.recv, 1, socket.MSG_OOB), (other.recvmsg, 1, 0, socket.MSG_OOB)]
    assert [error_of(*wanted) for wanted in calls] == [errno.EPERM] * 4


def control(descriptor, request, argument):
    """Whether the kernel did what was asked."""
    if not ON_X86:
        return LIBC.ioctl(descriptor, ctypes.c_ulong(request), argument) != -1
    wide = ctypes.c_long(16), ctypes.c_long(descriptor), ctypes.c_ulong(request)
    return LIBC.syscall(*wide, argument) != -1


def calls_terminal(*_):
    """Tries to type into the operator's terminal, by every descriptor and device there is. Must end in: weights"""
    push, console, take, line, wide = 0x5412, 0x541C, 0x540E, 0x5423, 1 << 32  # the kernel drops the last
    devices = ("tty", "console", "ptmx", "pts/*", "tty[0-9]*", "ttyS*", "vcs*", "hvc*")
    opened, reached = list(range(64)), []
    for path in (path for pattern in devices for path in glob.glob(f"/dev/{pattern}")):
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
                os._exit(any(control(number, take, ctypes.c_long(1)) for number in opened))
            finally:
                os._exit(2)
        for number in opened:
            for request in (push, console, line, push | wide, console | wide):
                for letter in (b"x", b"\x02", b"\x03", b"\x0b"):
                    if control(number, request, ctypes.c_char_p(letter)):
                        reached.append(f"{number} {request:x}")
        if leads and os.waitstatus_to_exitcode(os.wait()[1]) != 0:
            reached.append("a terminal of its own")
    assert not reached, reached
