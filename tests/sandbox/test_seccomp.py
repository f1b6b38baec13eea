"""The filter as a program, interpreted for both machine types; and what else a forked child does to itself."""

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox.guest import linux
from sandbox.seccomp import UnsupportedMachine, build_filter
from sandbox.syscalls import ALLOWED, CHECKED, FOR_DRIVERS

ALLOW, KILL = 0x7FFF0000, 0x80000000
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def decide(machine: str, number: int, *arguments: int, claimed: int | None = None, accelerator: bool = False) -> int:
    """Run the filter over one call and return its answer."""
    program = build_filter(machine, accelerator=accelerator)
    code = [struct.unpack_from("<HBBI", program, 8 * i) for i in range(len(program) // 8)]
    padded = [*arguments, *[0] * (6 - len(arguments))]
    audit = claimed if claimed is not None else MACHINES[machine][1]
    call = struct.pack("<IIQ6Q", number, audit, 0, *padded)
    position = accumulator = 0
    while True:
        operation, if_true, if_false, value = code[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", call, value)
        elif operation == 0x06:
            return value
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            position += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_is_decided_as_the_list_says(machine: str) -> None:
    column = MACHINES[machine][0]
    allowed = {pair[column] for pair in ALLOWED.values()}
    checked = {pair[column] for pair in CHECKED.values()}
    for number in range(600):
        if number not in checked:
            expected = ALLOW if number in allowed else 0x50000 | errno.ENOSYS
            assert decide(machine, number) == expected, number


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide(machine: str) -> None:
    column = MACHINES[machine][0]
    number = {name: pair[column] for name, pair in CHECKED.items()}
    assert decide(machine, number["socket"], 1, 1) == ALLOW
    assert decide(machine, number["socket"], 2, 1) == 0x50000 | errno.EAFNOSUPPORT
    assert decide(machine, number["socketpair"], 1) == ALLOW
    assert decide(machine, number["clone"], 0x003D0F00) == ALLOW  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(machine, number["clone"], flag | 17) == 0x50000 | errno.EPERM
    assert decide(machine, number["clone3"]) == 0x50000 | errno.ENOSYS
    assert decide(machine, number["ioctl"], 1, 0x5413) == ALLOW
    assert decide(machine, number["ioctl"], 1, 0x5412) == 0x50000 | errno.ENOTTY
    assert decide(machine, number["ioctl"], 1, 0x5412, accelerator=True) == 0x50000 | errno.EPERM
    assert decide(machine, number["ioctl"], 1, 0xC020462A, accelerator=True) == ALLOW
    assert decide(machine, number["prctl"], 22) == 0x50000 | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_file_state_in_the_kernel_is_no_channel_between_runs(machine: str) -> None:
    number = {name: pair[MACHINES[machine][0]] for name, pair in CHECKED.items()}
    pretended, refused = 0x50000, 0x50000 | errno.EPERM
    assert decide(machine, number["flock"], 3, 2) == pretended
    assert decide(machine, number["fadvise64"], 3, 0, 0, 4) == pretended
    assert {decide(machine, number["fcntl"], 3, lock) for lock in (6, 7, 37, 38)} == {pretended}
    assert {decide(machine, number["fcntl"], 3, other) for other in (8, 10, 15, 1024, 1026, 1031, 1036)} == {refused}
    assert {decide(machine, number["fcntl"], 3, own) for own in (0, 1, 2, 3, 4, 5, 36, 1030)} == {ALLOW}
    assert {decide(machine, number["madvise"], 0, 1, advice) for advice in (12, 20, 21, 25)} == {pretended}
    assert {decide(machine, number["madvise"], 0, 1, advice) for advice in (4, 14)} == {ALLOW}
    assert decide(machine, number["madvise"], 0, 1, 8) == 0x50000 | errno.EINVAL


@pytest.mark.parametrize("machine", MACHINES)
def test_sync_and_huge_pages_of_the_host_are_out_of_reach(machine: str) -> None:
    number = {name: pair[MACHINES[machine][0]] for name, pair in CHECKED.items()}
    pretended = 0x50000
    assert {decide(machine, number[call], 3) for call in ("fsync", "fdatasync", "sync_file_range")} == {pretended}
    assert decide(machine, number["msync"], 4096, 4096, 4) == pretended
    assert decide(machine, number["msync"], 4096, 4096, 1) == ALLOW
    assert decide(machine, number["mmap"], 0, 1 << 21, 3, 0x40022) == 0x50000 | errno.ENOMEM
    assert decide(machine, number["mmap"], 0, 1 << 21, 3, 0x22) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_core_limit_can_be_read_and_not_set(machine: str) -> None:
    number = {name: pair[MACHINES[machine][0]] for name, pair in CHECKED.items()}
    refused = 0x50000 | errno.EPERM
    assert decide(machine, number["prlimit64"], 0, 4, 0, 1 << 40) == ALLOW
    assert decide(machine, number["prlimit64"], 0, 4, 1 << 40) == refused
    assert decide(machine, number["prlimit64"], 0, 4, 1) == refused
    assert decide(machine, number["prlimit64"], 0, 7, 1 << 40) == ALLOW
    assert decide(machine, number["setrlimit"], 4, 1 << 40) == refused
    assert decide(machine, number["setrlimit"], 7, 1 << 40) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_take_no_program_and_no_out_of_band_data(machine: str) -> None:
    number = {name: pair[MACHINES[machine][0]] for name, pair in CHECKED.items()}
    assert decide(machine, number["setsockopt"], 3, 1, 7) == ALLOW  # SNDBUF
    for program in (26, 50, 51, 52):
        assert decide(machine, number["setsockopt"], 3, 1, program) == 0x50000 | errno.ENOPROTOOPT
    for call in ("sendto", "recvfrom", "sendmmsg", "recvmmsg"):
        assert decide(machine, number[call], 3, 0, 0, 0x4001) == 0x50000 | errno.EPERM
        assert decide(machine, number[call], 3, 1, 1, 0x4000) == ALLOW
    for call in ("sendmsg", "recvmsg"):
        assert decide(machine, number[call], 3, 0, 0x4001) == 0x50000 | errno.EPERM
        assert decide(machine, number[call], 3, 1, 0x4000) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_for_drivers_are_open_with_a_device_alone(machine: str) -> None:
    column = MACHINES[machine][0]
    assert FOR_DRIVERS.keys() == {"memfd_create"}
    for pair in FOR_DRIVERS.values():
        assert decide(machine, pair[column]) == 0x50000 | errno.ENOSYS
        assert decide(machine, pair[column], accelerator=True) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_driver_memory_files_take_no_huge_pages(machine: str) -> None:
    memfd_create = FOR_DRIVERS["memfd_create"][MACHINES[machine][0]]
    cloexec, huge_pages, of_2_mib = 1, 4, 21 << 26
    assert decide(machine, memfd_create, 4096, cloexec, accelerator=True) == ALLOW
    for flags in (huge_pages, huge_pages | cloexec, huge_pages | of_2_mib):
        assert decide(machine, memfd_create, 4096, flags, accelerator=True) == 0x50000 | errno.EPERM


def test_other_tables_end_the_process() -> None:
    assert decide("x86_64", 20, claimed=0x40000003) == KILL  # i386
    assert decide("x86_64", 0x40000000 | 39) == KILL  # x32
    assert decide("aarch64", 20, claimed=0x40000028) == KILL  # arm


def test_other_machine_has_no_filter() -> None:
    with pytest.raises(UnsupportedMachine, match="riscv64"):
        build_filter("riscv64")


def test_dangerous_calls_are_not_on_the_list() -> None:
    dangerous = {
        "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "mount", "umount2",
        "unshare", "setns", "pivot_root", "chroot", "keyctl", "add_key", "request_key", "bpf",
        "perf_event_open", "userfaultfd", "memfd_create", "memfd_secret", "io_uring_setup", "io_setup",
        "open_by_handle_at", "init_module", "finit_module", "kexec_load", "reboot", "swapon",
        "settimeofday", "clock_settime", "mknod", "mknodat", "setuid", "setresuid", "personality", "splice",
        "vmsplice", "shmget", "mq_open", "sched_setaffinity", "sched_setscheduler", "seccomp", "sync",
        "preadv2", "readahead", "mincore", "cachestat", "inotify_init1",
    }  # fmt: skip
    assert not dangerous & (set(ALLOWED) | set(CHECKED))


OLDER_THREAD = """
import os
import threading

from sandbox.guest import linux
from sandbox.seccomp import build_filter

def call():
    loaded.wait()
    try:
        os.memfd_create("open")
    except OSError as error:
        print(error.errno)

loaded = threading.Event()
thread = threading.Thread(target=call)
thread.start()
linux.forbid_new_privileges()
linux.load_seccomp(build_filter())
loaded.set()
thread.join()
"""


def test_a_thread_from_before_the_load_is_filtered_too() -> None:
    told = subprocess.run([sys.executable, "-c", OLDER_THREAD], capture_output=True, text=True, timeout=60, check=False)
    assert (told.stdout, told.stderr) == (f"{errno.ENOSYS}\n", "")


def test_a_filter_that_not_every_thread_takes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "_libc", SimpleNamespace(syscall=lambda *_: 77))
    with pytest.raises(OSError, match="thread 77 cannot take it"):
        linux.load_seccomp(build_filter())
    monkeypatch.setattr(linux, "_libc", SimpleNamespace(syscall=lambda *_: -1))
    with pytest.raises(OSError, match="seccomp: "):
        linux.load_seccomp(build_filter())


KEEPS_ONLY = """
import os, resource
from sandbox.guest.isolate import keep_only
log = os.dup(1)
os.dup2(os.open("/", os.O_RDONLY), 200)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
keep_only({0: 0, 1: log, 2: 2, 3: os.pipe()[1]})
open_ones = [fd for fd in range(1000) if os.path.exists(f"/proc/self/fd/{fd}")]
os.write(1, repr(open_ones).encode())
"""


def test_descriptors_beyond_the_lowered_limit_are_closed_too() -> None:
    done = subprocess.run([sys.executable, "-c", KEEPS_ONLY], capture_output=True, check=True, text=True)
    assert done.stdout == "[0, 1, 2, 3]"


SHOWS = """
import os, sys
from pathlib import Path
from sandbox.guest import isolate, linux
folder = Path(sys.argv[1])
linux.unshare(linux.CLONE_NEWNS)
linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
source, target = folder / "source", folder / "target"
source.mkdir(), target.mkdir()
linux.mount("none", str(source), kind="tmpfs", flags=linux.MS_NOEXEC)
isolate._show(str(source), str(target))
flags = os.statvfs(target).f_flag
print([bool(flags & one) for one in (os.ST_RDONLY, os.ST_NOSUID, os.ST_NODEV, os.ST_NOEXEC)])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts outside a user namespace")
def test_shown_files_are_read_only_and_not_executable(tmp_path: Path) -> None:
    # In a user namespace the kernel refuses a remount that would give that right back.
    done = subprocess.run([sys.executable, "-c", SHOWS, str(tmp_path)], capture_output=True, text=True, check=False)
    if "PermissionError" in done.stderr:
        pytest.skip("root without the right to mount")
    assert done.stdout.strip() == "[True, True, True, True]"
