"""The folder of files in which a worker's processes count, before and after prometheus_client opens them."""

import os
from pathlib import Path


def share(folder: Path) -> None:
    """Set prometheus_client's multiprocess folder, before it is imported; counts of this process begin at 0."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in _own(folder):
        path.unlink(missing_ok=True)  # of a process that had this number before, as every container's first has


def forget_others(folder: Path) -> None:
    """Remove what processes of earlier workers counted."""
    for path in set(folder.glob("*.db")) - _own(folder):
        path.unlink(missing_ok=True)


def _own(folder: Path) -> set[Path]:
    return set(folder.glob(f"*_{os.getpid()}.db"))
