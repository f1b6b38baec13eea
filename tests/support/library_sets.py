"""A set of older libraries as it lies in its folder, without the gigabytes."""

import json
from pathlib import Path

from sandbox.environments import RECORD, lock_sha256, own_environment


def write_set(folder: Path, *, lock: str | None = None, site: Path | None = None) -> Path:
    """Write the record of a set whose files are this process's own."""
    own = own_environment()
    (folder / "2023").mkdir(parents=True)
    record = {
        "prefix": str(own.prefix),
        "site": str(site or own.site),
        "is_shared": own.is_shared,
        "versions": {"python": own.python, "torch": "2.1.2"},
        "lock_sha256": lock or lock_sha256("2023"),
    }
    (folder / "2023" / RECORD).write_text(json.dumps(record))
    return folder
