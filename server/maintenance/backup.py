"""Backup and restore: the database first, then the storage, so that every file a row names is in the copy.

Files are never changed once they are written (a result is named by its attempt, a content by its hash), so a copy that
is made while the instance runs is whole. A split that is prepared again in between is the one exception: its manifest's
hash then differs from the row's, and the split is prepared again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import make_url

from lethe.errors import HostFault
from server.config import Settings
from server.db import Database
from server.errors import Conflict
from server.evaluations import rerun
from server.maintenance import garbage_repository
from server.maintenance.database_copy import POSTGRES_COPY, SQLITE_COPY, dump, load, restored
from server.maintenance.garbage_repository import MANIFEST
from server.storage import Storage, StoredFile

FILES, HASHES, LIST = "storage", "SHA256SUMS", "backup.json"
DAMAGED = "DAMAGED"  # in a copy of damaged files: their names
PREFIXES = ("submissions", "evaluations", "splits", "datasets")
COPY_THREADS = 16  # files at a time
MAX_NAMED = 5  # damaged files that a refusal names
SERIES_PATTERN = "????-??-??T??????Z"  # the folders of a series, by their time


class DamagedBackup(HostFault):
    """A backup is not what was written, or lacks what its rows name."""


class DamagedStorage(DamagedBackup):
    """Files are not what the rows say: keys below the storage."""

    def __init__(self, keys: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.keys = keys


@dataclass(frozen=True)
class Copied:
    """What a backup or a restore moved."""

    database: str
    files: int
    bytes: int


def back_up(settings: Settings, folder: Path, *, previous: Path | None = None) -> Copied:
    """Copy database and storage into `folder`. Raises Conflict if it holds anything, HostFault if a step fails.

    previous: an earlier backup on the same file system. What it has of the files that never change is linked, not
    copied: each backup stays a whole one, whichever others are removed.
    """
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty; a backup goes into a folder of its own")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kind = dump(settings.resolved_database_url, folder)
    target = Storage((folder / FILES).absolute().as_uri())
    known = _Previous(previous, folder) if previous else None
    copied, hashes = _copy(Storage(settings.resolved_storage_url), target, kind, known=known)
    database = folder / (SQLITE_COPY if kind == "sqlite" else POSTGRES_COPY)
    hashes[database.name] = _hash_file(database)
    (folder / HASHES).write_text("".join(f"{sha256}  {name}\n" for name, sha256 in hashes.items()))
    (folder / LIST).write_text(json.dumps(asdict(copied)) + "\n")  # last: its presence says that the copy is intact
    return copied


def verify(settings: Settings, folder: Path) -> int:
    """Restore a backup's database beside the instance's, and compare every file with the hash that the rows hold.

    Return how many files rows name. PostgreSQL: the instance's account must be allowed to create a database; it is
    removed afterwards. Raises DamagedBackup naming what is missing or not what was copied, DamagedStorage for what
    was damaged before it was copied.
    """
    _check(folder)
    copy = restored(settings.resolved_database_url, folder)
    with copy as url, Database(url) as database, database.read() as session:
        named = garbage_repository.named_files(session)
    missing = sorted(key for key in named if not (folder / FILES / key).is_file())
    if missing:
        raise DamagedBackup(f"{folder} lacks {len(missing)} files that its rows name, among them {missing[0]}")
    copied = {name.removeprefix(f"{FILES}/"): sha256 for name, sha256 in _hashes(folder).items()}
    wanted = named | _of_manifests(folder, named)
    if damaged := sorted(key for key, sha256 in wanted.items() if copied.get(key) != sha256):
        more = f" and {len(damaged) - MAX_NAMED} more" if len(damaged) > MAX_NAMED else ""
        listed = ", ".join(damaged[:MAX_NAMED]) + more
        raise DamagedStorage(damaged, f"{folder} holds files that are not what the database says: {listed}")
    return len(wanted)


def _of_manifests(folder: Path, named: Mapping[str, str]) -> dict[str, str]:
    """Return the files of prepared splits with the hashes that their manifests hold."""
    hashes: dict[str, str] = {}
    for key in named:
        split, _, name = key.rpartition("/")
        if name == MANIFEST:
            files = json.loads((folder / FILES / key).read_text(encoding="utf-8"))["files"]
            hashes |= {f"{split}/{path}": str(record["sha256"]) for path, record in files.items()}
    return hashes


def back_up_in_series(settings: Settings, folder: Path, *, keep: int) -> tuple[Path, Copied]:
    """Make the next backup of a series in `folder`, verify it, and remove all but the newest `keep` whole ones.

    What is not whole is removed, here and by the next call: the disk would fill with it. Where the instance's own files
    are damaged, the newest copy is kept as it is beside the whole ones, what can be computed is computed again, and
    DamagedStorage is raised.
    """
    backups = sorted(folder.glob(SERIES_PATTERN))
    made = [each for each in backups if (each / LIST).exists()]
    for broken_off in set(backups) - set(made):
        shutil.rmtree(broken_off)
    of_damaged = [each for each in made if (each / DAMAGED).exists()]
    whole = [each for each in made if each not in of_damaged]
    new = folder / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
    try:
        copied = _copied_whole(settings, new, previous=whole[-1] if whole else None)
    except DamagedStorage as error:
        (new / DAMAGED).write_text("".join(f"{key}\n" for key in error.keys))
        again = f"The runs of {_make_again(settings, error.keys)} damaged results are made again"
        raise DamagedStorage(error.keys, f"{error.detail}. {again}") from error
    finally:
        for old in of_damaged if (new / LIST).exists() else ():
            shutil.rmtree(old)
    for old in [*whole, new][:-keep]:
        shutil.rmtree(old)
    return new, copied


def _copied_whole(settings: Settings, new: Path, *, previous: Path | None) -> Copied:
    """Make a backup and verify it; where it is damaged, once more without `previous`, whose disk may be the cause.

    Where it fails, only a copy of damaged files of the instance is left.
    """
    try:
        copied = back_up(settings, new, previous=previous)
        verify(settings, new)
    except DamagedBackup as error:
        if previous is None and isinstance(error, DamagedStorage):
            raise
        shutil.rmtree(new, ignore_errors=True)
        if previous is None:
            raise
        return _copied_whole(settings, new, previous=None)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return copied


def _make_again(settings: Settings, keys: Sequence[str]) -> int:
    """Queue the runs whose results are damaged. Return how many shards."""
    with Database(settings.resolved_database_url) as database, database.write() as session:
        lost = garbage_repository.damaged_results(session, keys)
        return sum(rerun.make_again(session, evaluation, shards) for evaluation, shards in lost.items())


def bring_back(settings: Settings, folder: Path) -> Copied:
    """Fill an empty database and the storage from `folder`. Raises Conflict, or HostFault before touching anything."""
    for needed in (LIST, HASHES):
        if not (folder / needed).exists():
            raise Conflict(f"{folder} holds no whole backup: {needed} is missing")
    made = Copied(**json.loads((folder / LIST).read_text()))
    if made.database != make_url(settings.resolved_database_url).get_backend_name():
        raise Conflict(f"{folder} holds a {made.database} database; LETHE_DATABASE_URL names another kind")
    _check(folder)
    source = Storage((folder / FILES).absolute().as_uri())
    copied, _ = _copy(source, Storage(settings.resolved_storage_url), made.database)
    if (copied.files, copied.bytes) != (made.files, made.bytes):
        raise HostFault(
            f"{folder} holds {copied.files} files, {copied.bytes} bytes; its list says {made.files}, {made.bytes}"
        )
    load(settings.resolved_database_url, folder)  # last: no row without its files
    return copied


class _Previous:
    """An earlier backup whose files may be linked into a new one."""

    def __init__(self, folder: Path, new: Path) -> None:
        if not (folder / LIST).exists():
            raise Conflict(f"{folder} holds no whole backup: {LIST} is missing")
        self._folder, self._new = folder, new
        self._hashes = _hashes(folder)

    def link(self, file: StoredFile) -> str | None:
        """Link a file into the new backup. Return its SHA-256, None where it has to be copied.

        A split may be prepared again under the same names, so its files are always copied.
        """
        name = f"{FILES}/{file.key}"
        old = self._folder / name
        if file.key.startswith("splits/") or name not in self._hashes or not old.is_file():
            return None
        if old.stat().st_size != file.size:
            return None
        new = self._new / name
        new.parent.mkdir(parents=True, exist_ok=True)
        os.link(old, new)
        return self._hashes[name]


def _copy(
    source: Storage, target: Storage, database: str, *, known: _Previous | None = None
) -> tuple[Copied, dict[str, str]]:
    """Copy every file that rows may name. Return what was copied, and each file's SHA-256 by its path in a backup."""

    def copy(file: StoredFile) -> tuple[str, int]:
        linked = known.link(file) if known else None
        if linked is not None:
            return linked, file.size
        data = source.read(file.key)
        return target.write(file.key, data), len(data)

    files = [file for prefix in PREFIXES for file in source.listed(prefix)]
    with ThreadPoolExecutor(COPY_THREADS) as pool:  # a copy mostly waits: for the network, or for the disk to have it
        copied = list(pool.map(copy, files))
    hashes = {f"{FILES}/{file.key}": sha256 for file, (sha256, _) in zip(files, copied, strict=True)}
    return Copied(database, len(hashes), sum(size for _, size in copied)), hashes


def _hashes(folder: Path) -> dict[str, str]:
    listed = (line.partition("  ") for line in (folder / HASHES).read_text().splitlines())
    return {name: sha256 for sha256, _, name in listed}


def _check(folder: Path) -> None:
    """Raise HostFault unless every file of the backup has the hash that it was written with."""
    listed = _hashes(folder)
    damaged = [
        name for name, sha256 in listed.items() if not (folder / name).is_file() or _hash_file(folder / name) != sha256
    ]
    if damaged:
        more = f" and {len(damaged) - MAX_NAMED} more" if len(damaged) > MAX_NAMED else ""
        raise DamagedBackup(
            f"{folder} is damaged: {', '.join(damaged[:MAX_NAMED])}{more}: missing, or not what was backed up"
        )


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
