"""Free disk and memory of the web server's machine."""

import shutil
from dataclasses import dataclass
from pathlib import Path

MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Host:
    """Disk and memory, bytes. memory_free: None where the system does not say."""

    disk_free: int
    disk_total: int
    memory_free: int | None


def measure_host(home: Path) -> Host:
    """Return the machine's free disk, of the file system that holds `home`, and its free memory."""
    folder = next(path for path in (home.absolute(), *home.absolute().parents) if path.exists())
    disk = shutil.disk_usage(folder)
    return Host(disk_free=disk.free, disk_total=disk.total, memory_free=_memory_free())


def _memory_free() -> int | None:
    if not MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024
