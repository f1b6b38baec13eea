"""Brings a competition from an archive into this instance: every hash is checked, then the files are stored, then the
rows are written in one transaction.

People come as placeholders: a name, banned, without address or password, so that nobody here is taken for somebody
there. An administrator who knows who a person is lifts the ban and makes them a reset link.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile, ZipFile

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from lethe.client.receipts import verify
from lethe.competition.visibility import Visibility
from lethe.errors import Conflict, InvalidInput, Violation
from server.accounts.service import name_key
from server.admin import audit
from server.archives.exporter import FILES, FORMAT, MANIFEST, RECEIPTS, ROWS, schema_head
from server.archives.tables import ADDED_LATER, CHUNK, OWN_PARTS, PEOPLE, Part, Row, read_row
from server.competitions import repository as competitions
from server.db import Database, now
from server.evaluations.kept_weights import weights_key
from server.models.account import Account
from server.starter_kit import service as starter_kit
from server.storage import CHUNK as PIECE
from server.storage import Storage, content_key, split_key

NO_PASSWORD = "!"  # noqa: S105 (no hash: no password is the right one)
NAME_LENGTH = 40
T = TypeVar("T")


@dataclass(frozen=True)
class Brought:
    """What an import brought."""

    slug: str
    rows: int
    files: int
    receipts: int
    renamed: dict[str, str]  # people whose name somebody here bears already: what they are called now
    receipt_key: str  # the other instance's


def read(database: Database, storage: Storage, path: Path) -> Brought:
    """Bring the competition in `path` into this instance. Raises InvalidInput for an archive that is damaged, and
    Conflict for a competition that this instance has already, or cannot understand."""
    try:
        with ZipFile(path) as zipped:
            manifest = _manifest(zipped)
            checked = _Checked(zipped, manifest)
            with database.read() as session:
                _check_is_new(session, checked)
            checked.check_files()
            checked.check_references()
            n_receipts = checked.check_receipts()
            n_files = _store_files(storage, checked)
            with database.write() as session:
                _check_is_new(session, checked)
                renamed = _write_rows(session, checked)
                data = {"archive": manifest["written_at"], "receipt_key": manifest["receipt_key"], "renamed": renamed}
                competition = competitions.by_slug(session, checked.slug)
                audit.record(
                    session, None, "competition.imported", competition=competition, subject=checked.slug, data=data
                )
    except BadZipFile as error:
        raise _invalid(f"is no archive: {error}") from error
    rows = sum(manifest["rows"].values())
    return Brought(checked.slug, rows, n_files, n_receipts, renamed, manifest["receipt_key"])


def _manifest(zipped: ZipFile) -> dict[str, Any]:
    if MANIFEST not in zipped.namelist():
        raise _invalid(f"is incomplete: it has no {MANIFEST}")
    manifest: dict[str, Any] = json.loads(zipped.read(MANIFEST))
    if manifest.get("format") != FORMAT:
        raise _invalid(f"has the format {manifest.get('format')!r}; this program reads {FORMAT!r}")
    listed = set(manifest["entries"])
    if listed != set(zipped.namelist()) - {MANIFEST}:
        raise _invalid("is incomplete: its manifest does not match its entries")
    if manifest["schema"] > schema_head():
        raise Conflict(
            f"The archive was written at revision {manifest['schema']} of the schema, this program is at "
            f"{schema_head()}; bring it up to date first"
        )
    return manifest


class _Checked:
    """An archive of which nothing is believed that the manifest's hashes do not say."""

    def __init__(self, zipped: ZipFile, manifest: dict[str, Any]) -> None:
        self._zip = zipped
        self._entries: dict[str, dict[str, Any]] = manifest["entries"]
        self._receipt_key = manifest["receipt_key"]
        for name in self._entries:
            for _piece in self.pieces(name):
                pass
        [competition] = self.rows(OWN_PARTS[0])
        self.id, self.slug = str(competition["id"]), str(competition["slug"])

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield an entry piece by piece. Raises InvalidInput at its end if the hash differs."""
        digest = hashlib.sha256()
        with self._zip.open(name) as entry:
            while piece := entry.read(PIECE):
                digest.update(piece)
                yield piece
        if digest.hexdigest() != self._entries[name]["sha256"]:
            raise _invalid(f"is damaged: {name} is not what the manifest says")

    def rows(self, part: Part) -> Iterator[Row]:
        """Yield the rows of a table. Raises InvalidInput if the archive should hold it and does not."""
        name = f"{ROWS}{part.name}.jsonl"
        if name not in self._entries:
            if part.name in ADDED_LATER:
                return
            raise _invalid(f"is incomplete: it has no {name}")
        with self._zip.open(name) as entry:
            for line in entry:
                yield json.loads(line)

    def keys(self) -> list[str]:
        """Return the keys of the storage that files are brought for."""
        return [name.removeprefix(FILES) for name in self._entries if name.startswith(FILES)]

    def check_files(self) -> None:
        """Raise InvalidInput for a file that is not of this competition: none of another one is ever written over."""
        parts = {part.name: part for part in OWN_PARTS}
        own = {content_key(str(row["content_sha256"])) for row in self.rows(parts["submissions"])}
        for row in self.rows(parts["shards"]):
            if row["result_key"] and str(row["result_key"]).split("/")[:2] == [
                "evaluations",
                str(row["evaluation_id"]),
            ]:
                own |= {str(row["result_key"]), weights_key(str(row["result_key"]))}
        folders = tuple(f"{split_key(self.slug, visibility.value)}/" for visibility in Visibility)
        own.update(starter_kit.possible_keys(self.slug))
        for key in self.keys():
            if ".." in key.split("/") or not (key in own or key.startswith(folders)):
                raise _invalid(f"holds {key}, which is no file of {self.slug}")
            if key.startswith("submissions/") and not key.endswith(self._entries[f"{FILES}{key}"]["sha256"]):
                raise _invalid(f"holds {key} with another content than its name says")

    def check_references(self) -> None:
        """Raise InvalidInput for a row of something that the archive does not hold: nothing of others is added to."""
        parts = {part.name: part for part in OWN_PARTS}
        ids = {part.name: {str(row["id"]) for row in self.rows(part)} for part in OWN_PARTS if "id" in part.table.c}
        for part in OWN_PARTS:
            references = [
                (column.name, key.column.table.name)
                for column in part.table.c
                for key in column.foreign_keys
                if key.column.table.name in parts
            ]
            for row in self.rows(part):
                for column, table in references:
                    if row.get(column) is not None and str(row[column]) not in ids[table]:
                        raise _invalid(f"has {part.name} of {table} that it does not hold")

    def check_receipts(self) -> int:
        """Check every receipt's signature. Return how many there are."""
        names = [name for name in self._entries if name.startswith(RECEIPTS)]
        for name in names:
            verify(json.loads(self._zip.read(name)), public_key=self._receipt_key)
        return len(names)


def _check_is_new(session: Session, checked: _Checked) -> None:
    if competitions.by_slug(session, checked.slug) is not None:
        raise Conflict(
            f"This instance has a competition called {checked.slug!r}. The name is part of a split's seeds, so an "
            "import cannot change it"
        )
    for part in OWN_PARTS:
        if part.is_numbered or "id" not in part.table.c:
            continue
        for some in _some(str(row["id"]) for row in checked.rows(part)):
            known = session.scalar(select(part.table.c.id).where(part.table.c.id.in_(some)).limit(1))
            if known is not None:
                raise Conflict(f"This instance has {known} of {part.name} already: the competition came from here")


def _store_files(storage: Storage, checked: _Checked) -> int:
    keys = checked.keys()
    for key in keys:
        storage.write(key, b"".join(checked.pieces(f"{FILES}{key}")))
    return len(keys)


def _write_rows(session: Session, checked: _Checked) -> dict[str, str]:
    renamed = _write_people(session, checked)
    numbers: dict[int, int] = {}  # of shards: there -> here
    for part in OWN_PARTS:
        found: Iterable[Row] = checked.rows(part)
        if part.name == "teams":
            found = _merged_last(found)
        for some in _some(found):
            values = [_renumbered(_known(part, row), part, numbers) for row in some]
            if part.name == "shards":
                numbers |= _insert_numbered(session, part, [int(row["id"]) for row in some], values)
            else:
                session.execute(insert(part.table), values)
    return renamed


def _write_people(session: Session, checked: _Checked) -> dict[str, str]:
    """Make a placeholder for each person who is not here yet. Return those who had to be renamed."""
    renamed = {}
    for row in checked.rows(PEOPLE):
        person = _known(PEOPLE, row)
        if session.get(Account, person["id"]) is not None:
            continue  # came with an earlier archive
        name = str(person["name"])
        if session.scalar(select(Account.id).where(Account.name_key == name_key(name))) is not None:
            renamed[name] = name = f"{name[: NAME_LENGTH - 17]}-{person['id']}"
        session.add(
            Account(**{**person, "name": name}, name_key=name_key(name), password_hash=NO_PASSWORD, disabled_at=now())
        )
        session.flush()
    return renamed


def _known(part: Part, row: Row) -> Row:
    try:
        return read_row(part, row)
    except KeyError as error:
        raise _invalid(f"has a column {error} in {part.name} that this program does not know") from error


def _renumbered(row: Row, part: Part, shards: dict[int, int]) -> Row:
    if part.is_numbered:
        row = {name: value for name, value in row.items() if name != "id"}
    return row | {"shard_id": shards[row["shard_id"]]} if "shard_id" in row else row


def _insert_numbered(session: Session, part: Part, there: list[int], values: list[Row]) -> dict[int, int]:
    made = session.scalars(insert(part.table).returning(part.table.c.id, sort_by_parameter_order=True), values)
    return dict(zip(there, made, strict=True))


def _merged_last(teams: Iterable[Row]) -> list[Row]:
    """Return each team behind the one that it was merged into."""
    waiting = {str(team["id"]): team for team in teams}
    ordered: list[Row] = []
    while waiting:
        free = [team for team in waiting.values() if team["merged_into_id"] not in waiting]
        if not free:
            raise _invalid("holds teams that were merged in a circle")
        ordered += free
        for team in free:
            del waiting[str(team["id"])]
    return ordered


def _some(found: Iterable[T]) -> Iterator[list[T]]:
    """Yield a few at a time."""
    left = iter(found)
    while some := list(islice(left, CHUNK)):
        yield some


def _invalid(what: str) -> InvalidInput:
    return InvalidInput(f"The archive {what}", violations=(Violation("archive", what),))
