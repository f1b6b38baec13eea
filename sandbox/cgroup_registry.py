"""Where launchers made control groups, so that a later start finds what a killed one left, wherever that was.

A launcher looks for leftovers below its own group. One that was started elsewhere before (by hand, then as a service)
left its groups elsewhere: a record in root's own folder names the places. Only root keeps records: an ordinary user's
groups lie in what was delegated to its service, and go with that.
"""

import os
from pathlib import Path

from sandbox.cgroups import GroupRoots, is_left_over, owner_mark, remove_leftovers

RECORDS = Path("/run/lethe-sandbox-groups")


def keep_record(roots: GroupRoots, *, records: Path = RECORDS) -> None:
    """Write down where this process makes groups."""
    if roots.version and _is_roots_own(records):
        lines = sorted({str(folder) for folder in roots.folders.values()})
        record = records / owner_mark()
        part = records / f".{record.name}"
        part.write_text("\n".join(lines), encoding="utf-8")
        part.replace(record)


def remove_recorded_leftovers(*, records: Path = RECORDS) -> list[str]:
    """Empty and remove the groups of recorded launchers that are gone, and their records. Return the groups' names."""
    removed: list[str] = []
    for record in sorted(records.glob("[0-9]*-*")) if _is_roots_own(records) else ():
        if not is_left_over(record.name):
            continue
        try:
            folders = [Path(line) for line in record.read_text(encoding="utf-8").splitlines()]
        except FileNotFoundError:
            continue  # another launcher that starts now has been here
        groups = {str(folder): folder for folder in folders if (folder / "cgroup.procs").is_file()}
        removed += remove_leftovers(GroupRoots(folders=groups))
        record.unlink(missing_ok=True)
    return removed


def _is_roots_own(records: Path) -> bool:
    """Make the folder, if there is none. What another user could write there would name groups to root."""
    if os.geteuid() != 0 or not records.parent.is_dir():
        return False
    records.mkdir(mode=0o700, exist_ok=True)
    seen = records.lstat()
    return not records.is_symlink() and seen.st_uid == 0 and not seen.st_mode & 0o022
