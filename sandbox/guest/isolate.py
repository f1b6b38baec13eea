"""What a forked child does before a participant's code runs: its own world, then no way out.

The order matters. Namespaces come first; the second fork makes process 1 of the new process
namespace, which alone can mount its /proc; capabilities go last, and the system-call filter after
them, so that nothing here needs a call that the participant must not have.
"""

import contextlib
import mmap
import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lethe.runtime.weights_layout import ORIGINAL_MODEL
from sandbox.guest import driver_view, linux

SCRATCH = "/scratch"
SUBMISSION = "/submission"
KAGGLE = "/kaggle"  # where this is mounted, notebooks run
DEVICE_NODES = ("null", "zero", "full", "random", "urandom")
_NOTEBOOK_FOLDERS = ("/kaggle/tmp", "/kaggle/working")  # only where a notebook's input folder is mounted
HUGE_PAGE = 2 << 20
PRIVATE_PAGE = 4  # the three highest bits of an entry of pagemap: present, not swapped, of no file
_ZYGOTES_SCRATCH_MIB, _ZYGOTES_INODES = 16, 1024
_MIB = 1024 * 1024
_LOCKED_DOWN = linux.MS_NOSUID | linux.MS_NODEV
_NAMESPACES = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
)


def enter_namespaces() -> None:
    """Leave every namespace of the zygote; the next fork is process 1 of the new process namespace."""
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(_NAMESPACES)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")


def build_zygotes_view(mounts: Mapping[str, int]) -> None:
    """Mount what differs from sandbox to sandbox in the template's empty root, then give up every privilege.

    mounts: place -> descriptor of a mount that the host has made read-only and that hangs nowhere yet.
    """
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    for target, fd in mounts.items():
        linux.move_mount(fd, target)
        os.close(fd)
    _mount_tmpfs(SCRATCH, mib=_ZYGOTES_SCRATCH_MIB, inodes=_ZYGOTES_INODES)  # the zygote's; each run covers it
    linux.mount("proc", "/proc", kind="proc", flags=_LOCKED_DOWN | linux.MS_NOEXEC)
    linux.drop_capabilities()


def hide_groups() -> None:
    """Make the control groups that the host has put this process into look like the root of all."""
    linux.unshare(linux.CLONE_NEWCGROUP)


def build_view(request: Mapping[str, Any], *, data: str, stage: str, policy: Mapping[str, Any]) -> None:
    """Mount the run's own scratch, shared memory and /proc; show its code and model; cover everybody else's."""
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    _mount_tmpfs(SCRATCH, mib=policy["scratch_mib"], inodes=policy["scratch_inodes"])
    linux.mount(SCRATCH, "/tmp", flags=linux.MS_BIND)  # noqa: S108 - the run's own, from an empty root
    _mount_tmpfs("/dev/shm", mib=policy["shared_memory_mib"], inodes=policy["scratch_inodes"])  # noqa: S108
    _mount_notebook_folders()
    for node in (*(f"/dev/{name}" for name in DEVICE_NODES), *policy["devices"]):
        # It can be written to all the same; but every run sees its times, which none may set.
        _remount(node, linux.MS_RDONLY | linux.MS_NOSUID)
    _copy(Path(stage, request["code"]), SUBMISSION)
    if request["original"]:
        _show(f"{stage}/{request['original']}", f"{data}/{ORIGINAL_MODEL}")
    _mount_proc(Path(stage), shows_device=bool(policy["devices"]))
    linux.mount(
        "none", stage, kind="tmpfs", flags=linux.MS_RDONLY | _LOCKED_DOWN, options="size=4k,nr_inodes=1,mode=000"
    )
    linux.set_hostname("lethe")


def _mount_proc(stage: Path, *, shows_device: bool) -> None:
    """Show process entries only: no /proc/sys, no kernel counters, nothing of the host's machine.

    The driver of a device reads a few files more. stage: covered for a while.
    """
    if shows_device:
        driver_view.mount_proc(stage)
    else:
        linux.mount("proc", "/proc", kind="proc", flags=_LOCKED_DOWN | linux.MS_NOEXEC, options="subset=pid")


def _copy(source: Path, target: str) -> None:
    """Show a folder as a copy that is as old as the run: the times of the original tell how long other runs took."""
    paths, page = sorted(source.rglob("*")), resource.getpagesize()
    size = page + sum(-(-path.lstat().st_size // page) * page for path in paths)
    options = f"size={size},nr_inodes=0,mode=0755,uid={os.getuid()},gid={os.getgid()}"
    linux.mount("none", target, kind="tmpfs", flags=_LOCKED_DOWN, options=options)
    for path in paths:
        place = Path(target, path.relative_to(source))
        if path.is_dir():
            place.mkdir()
        else:
            shutil.copyfile(path, place, follow_symlinks=False)
    _remount(target, linux.MS_RDONLY | _LOCKED_DOWN)


def _show(source: str, target: str) -> None:
    linux.mount(source, target, flags=linux.MS_BIND)
    _remount(target, linux.MS_RDONLY | _LOCKED_DOWN)


def _remount(target: str, flags: int) -> None:
    """Give a mount these flags. One that the host has without the right to execute must stay so."""
    if os.statvfs(target).f_flag & os.ST_NOEXEC:
        flags |= linux.MS_NOEXEC
    linux.mount("none", target, flags=linux.MS_BIND | linux.MS_REMOUNT | flags)


def _mount_notebook_folders() -> None:
    """Mount the notebook's output folders: both are the run's scratch, and share its limit."""
    for target in _NOTEBOOK_FOLDERS:
        if Path(target).is_dir():
            source = Path(SCRATCH, ".lethe", Path(target).name)
            source.mkdir(parents=True)
            linux.mount(str(source), target, flags=linux.MS_BIND)


def _mount_tmpfs(target: str, *, mib: int, inodes: int) -> None:
    options = f"size={mib * _MIB},nr_inodes={inodes},mode=0700,uid={os.getuid()},gid={os.getgid()}"
    linux.mount("none", target, kind="tmpfs", flags=_LOCKED_DOWN, options=options)


def limit_resources(policy: Mapping[str, Any], *, own_process_count: bool) -> None:
    """Set the limits that the kernel keeps for each process.

    own_process_count: whether the run has its own user namespace, without which RLIMIT_NPROC
    would count the host's processes of the same user.
    """
    cpu_s = int(policy["process_cpu_s"]) + 1
    limits = {
        resource.RLIMIT_CORE: core_limit(),
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: policy["file_size_mib"] * _MIB,
        resource.RLIMIT_NOFILE: policy["open_files"],
        resource.RLIMIT_MEMLOCK: 0,  # to lock pages that runs share makes them inactive, which later ones would read
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 1024,
    }
    if own_process_count:
        limits[resource.RLIMIT_NPROC] = policy["processes"] + 1  # its keeper is in that namespace too
    if policy["device"] == "cpu":  # a driver maps far more than it uses
        limits[resource.RLIMIT_DATA] = data_size_bytes() + policy["memory_mib"] * _MIB
    for name, value in limits.items():
        resource.setrlimit(name, (value, value))


def core_limit() -> int:
    """Return the limit on core dumps, in bytes. The filter keeps the run from changing it.

    Below a page no file is written, and of all limits 1 alone keeps the kernel from handing the dump to a program of
    the host's (core_pattern with a pipe), which 0 does not. But a host's own 0 cannot be raised from inside.
    """
    return 0 if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else 1


def data_size_bytes() -> int:
    """Return what this process's private writable memory counts against RLIMIT_DATA already."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    return pages * resource.getpagesize()


def lock_down(seccomp_filter: bytes) -> None:
    """Give up every privilege and load the filter. Nothing after this can be undone."""
    linux.drop_capabilities()
    linux.forbid_new_privileges()
    if seccomp_filter:
        linux.load_seccomp(seccomp_filter)


def forget_references() -> None:
    """Clear the kernel's marks of which pages were used: forks share pages, and a run reads their marks in its smaps.

    Those that an earlier run set on purpose are a message to this one. A kernel without this file has no smaps.
    """
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/self/clear_refs").write_text("1", encoding="ascii")


def use_huge_pages() -> None:
    """Put the private memory of this process on huge pages: a fork then copies one entry where it copied 512.

    Only whole huge pages of memory that no file stands behind.
    """
    with Path("/proc/self/maps").open() as maps:
        for line in maps.read().splitlines():
            span, rights, _offset, _device, _inode, *name = line.split()
            if rights != "rw-p" or (name and name != ["[heap]"]):
                continue
            begin, end = (int(word, 16) for word in span.split("-"))
            for address in range(-(-begin // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
                linux.collapse(address, HUGE_PAGE)


def mark_all_pages() -> None:
    """Mark every private page of this process as active, for the forks that will share it.

    A run reads these marks in its numa_maps and sets them by use: those that it could set would be a message to the
    next. A huge page takes the mark only where it is mapped as small ones, which a run can do. Here a fork does it, and
    marks what both share; its own are those that it writes to. From Linux 5.14 on; before, nothing is marked.
    """
    child = os.fork()
    if child == 0:
        try:
            spans = _private_spans()
            for begin, length in spans:
                for address in range(-(-begin // HUGE_PAGE) * HUGE_PAGE, begin + length - HUGE_PAGE + 1, HUGE_PAGE):
                    linux.split(address)
            _mark_pages(spans)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("the pages that runs share could not be marked")
    _mark_pages(_private_spans())


def _private_spans() -> list[tuple[int, int]]:
    """Return where this process's private pages lie: address and length, in bytes, of those that adjoin."""
    page = resource.getpagesize()
    spans: list[tuple[int, int]] = []
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for line in maps.read().splitlines():
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            if not line.split()[1].startswith("r") or line.split()[1].endswith("s") or begin >> 63:
                continue
            entries = np.frombuffer(os.pread(pagemap.fileno(), (end - begin) // page * 8, begin // page * 8), np.uint64)
            private = np.flatnonzero(entries >> 61 == PRIVATE_PAGE)
            for span in np.split(private, np.flatnonzero(np.diff(private) > 1) + 1):
                if span.size:
                    spans.append((begin + int(span[0]) * page, span.size * page))
    return spans


def _mark_pages(spans: Sequence[tuple[int, int]]) -> None:
    for _ in range(2):  # the first use makes a page a candidate
        for begin, length in spans:
            linux.touch(begin, length)
        mmap.mmap(-1, resource.getpagesize()).close()  # the kernel then carries out what it has put off


def keep_only(descriptors: Mapping[int, int]) -> None:
    """Put each named descriptor at its number (a mapping of number to descriptor) and close all others."""
    highest = max(descriptors)
    safe = {number: os.dup(fd) for number, fd in descriptors.items()}
    while any(fd <= highest for fd in safe.values()):
        safe = {number: os.dup(fd) if fd <= highest else fd for number, fd in safe.items()}
    for number, fd in safe.items():
        os.dup2(fd, number, inheritable=number <= 2)
    # Not up to the process's limit: that has been lowered, and what was open beyond it stays open.
    os.closerange(highest + 1, max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1)


def bind_cpus(cpus: list[int]) -> None:
    """Run on the policy's processors only; the filter keeps the run from widening them again."""
    if cpus:
        os.sched_setaffinity(0, cpus)
