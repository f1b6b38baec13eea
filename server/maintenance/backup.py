"""Backup and restore: the database first, then the storage, so that every file a row names is in the copy.

Files are never changed once they are written (a result is named by its attempt, a content by its hash), so a copy that
is made while the instance runs is whole. A split that is prepared again in between is the one exception: its manifest's
hash then differs from the row's, and the split is prepared again.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import make_url

from lethe.errors import HostFault
from server.config import Settings
from server.errors import Conflict
from server.storage import Storage

SQLITE_COPY, POSTGRES_COPY, FILES, HASHES, LIST = "lethe.db", "lethe.dump", "storage", "SHA256SUMS", "backup.json"
SHOWN = 5  # damaged files that a refusal names


@dataclass(frozen=True)
class Copied:
    """What a backup or a restore moved."""

    database: str
    files: int
    bytes: int


def back_up(settings: Settings, folder: Path) -> Copied:
    """Copy database and storage into `folder`. Raises Conflict if it holds anything, HostFault if a step fails."""
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty; a backup goes into a folder of its own")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kind = _dump(settings.resolved_database_url, folder)
    copied, hashes = _copy(Storage(settings.resolved_storage_url), Storage((folder / FILES).absolute().as_uri()), kind)
    database = folder / (SQLITE_COPY if kind == "sqlite" else POSTGRES_COPY)
    hashes[database.name] = _hash_file(database)
    (folder / HASHES).write_text("".join(f"{sha256}  {name}\n" for name, sha256 in hashes.items()))
    (folder / LIST).write_text(json.dumps(asdict(copied)) + "\n")  # last: its presence says that the copy is intact
    return copied


def bring_back(settings: Settings, folder: Path) -> Copied:
    """Fill an empty database and the storage from `folder`. Raises Conflict if the instance has a database already.

    Raises HostFault naming what is damaged or missing, before anything of the instance is touched.
    """
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
    _load(settings.resolved_database_url, folder)  # last: no row without its files
    return copied


def _dump(url: str, folder: Path) -> str:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        copy = folder / SQLITE_COPY
        with closing(sqlite3.connect(str(parsed.database))) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    else:
        _run("pg_dump", url, "--format=custom", "--no-owner", f"--file={folder / POSTGRES_COPY}")
    return parsed.get_backend_name()


def _load(url: str, folder: Path) -> None:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        target = Path(str(parsed.database))
        if target.exists():
            raise Conflict(f"{target} exists; restore into an instance that has no database yet")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / SQLITE_COPY, target)
    else:
        _run("pg_restore", url, "--no-owner", "--exit-on-error", "--single-transaction", str(folder / POSTGRES_COPY))


def _run(program: str, url: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs. The password goes through the environment: arguments can be seen by all."""
    parsed = make_url(url)
    address = parsed.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    environment = os.environ | ({"PGPASSWORD": str(parsed.password)} if parsed.password else {})
    try:
        subprocess.run(
            [program, f"--dbname={address}", *arguments], check=True, env=environment, capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise HostFault(f"{program} is not on PATH: install PostgreSQL's client programs") from error
    except subprocess.CalledProcessError as error:
        raise HostFault(f"{program} failed: {error.stderr.strip()[-500:]}") from error


def _copy(source: Storage, target: Storage, database: str) -> tuple[Copied, dict[str, str]]:
    """Copy every file that rows may name. Return what was copied, and each file's SHA-256 by its path in a backup."""
    hashes = {}
    size = 0
    for prefix in ("submissions", "evaluations", "splits", "datasets"):
        for file in source.listed(prefix):
            data = source.read(file.key)
            hashes[f"{FILES}/{file.key}"] = target.write(file.key, data)
            size += len(data)
    return Copied(database, len(hashes), size), hashes


def _check(folder: Path) -> None:
    """Raise HostFault unless every file of the backup has the hash that it was written with."""
    listed = (line.partition("  ") for line in (folder / HASHES).read_text().splitlines())
    damaged = [
        name for sha256, _, name in listed if not (folder / name).is_file() or _hash_file(folder / name) != sha256
    ]
    if damaged:
        more = f" and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
        raise HostFault(f"{folder} is damaged: {', '.join(damaged[:SHOWN])}{more}: missing, or not what was backed up")


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
