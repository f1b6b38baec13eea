"""The files of /proc that an accelerator's driver reads, in a run that is shown a device. All others stay hidden.

NVIDIA's user-space driver asks whether its kernel module is loaded, which numbers its devices have, and whether it
should fix their files. It gets copies, made when the run begins and cut to the lines that speak of it, so that they
reveal nothing of what the host does meanwhile. What is in the kernel's file system beside them and the run's own
processes is covered with what is empty.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.guest import linux

PROC = Path("/proc")
_FLAGS = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
_EMPTY_FOLDER, _EMPTY_FILE = ".folder", ".file"


def _whole(text: str) -> str:
    return text


def _nvidia_only(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if "nvidia" in line or line.startswith("Character devices"))


def _no_changes(text: str) -> str:
    """A driver that found its files not its own (their owner has no name inside) would try to fix them."""
    return text.replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0")


_READ_BY_DRIVERS: Mapping[str, Callable[[str], str]] = {
    "cpuinfo": _whole,
    "devices": _nvidia_only,
    "driver/nvidia/params": _no_changes,
    "driver/nvidia/version": _whole,
    "modules": _nvidia_only,
    "sys/vm/mmap_min_addr": _whole,
}


def driver_files(proc: Path = PROC) -> dict[str, str]:
    """Return the text that each file is to have, by its path below /proc; those that the host lacks are left out."""
    files: dict[str, str] = {}
    for name, cut in _READ_BY_DRIVERS.items():
        try:
            files[name] = cut((proc / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return files


def mount_proc(holder: Path) -> None:
    """Mount /proc with the run's processes, the files that drivers read, and nothing else.

    holder: a folder that may be covered; the caller covers it again.
    """
    files = driver_files()
    try:
        linux.mount("proc", str(PROC), kind="proc", flags=_FLAGS)
    except OSError:  # a container that hides parts of its own /proc may not show all of it
        linux.mount("proc", str(PROC), kind="proc", flags=_FLAGS, options="subset=pid")
        return
    linux.mount("none", str(holder), kind="tmpfs", flags=_FLAGS, options="size=8m,mode=0755")
    (holder / _EMPTY_FOLDER).mkdir()
    (holder / _EMPTY_FILE).touch()
    for name, text in files.items():
        (holder / name).parent.mkdir(parents=True, exist_ok=True)
        (holder / name).write_text(text, encoding="utf-8")
    linux.mount("none", str(holder), flags=linux.MS_REMOUNT | linux.MS_RDONLY | _FLAGS)
    with os.scandir(PROC) as entries:
        for entry in entries:
            if not entry.name.isdigit() and not entry.is_symlink():
                _cover(entry, holder)


def _cover(entry: os.DirEntry[str], holder: Path) -> None:
    source = holder / entry.name
    if not source.exists():
        source = holder / (_EMPTY_FOLDER if entry.is_dir() else _EMPTY_FILE)
    linux.mount(str(source), entry.path, flags=linux.MS_BIND)
