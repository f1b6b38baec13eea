"""Brings a competition from an archive into this instance: every hash is checked, then the files are stored, then the
rows are written in one transaction.

People come as placeholders: a name, banned, with a new id, without address, role or password, so that nobody here is
taken for somebody there. An administrator who knows who a person is lifts the ban and makes them a reset link.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar
from zipfile import BadZipFile, ZipFile

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from server import audit
from server.accounts.accounts import name_key
from server.archives.exporter import CHUNK, FILES, OWN_PARTS, PEOPLE, Part, Row, read_row, unknown_columns
from server.archives.reader import ManifestArchive, invalid, is_vouched_for, read_manifest
from server.competitions import competition_repository
from server.db import Database, new_id, now
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition
from server.storage import Storage

NO_PASSWORD = "!"  # noqa: S105 (no hash: no password is the right one)
NAME_LENGTH = 40
KEY_LENGTH = 64
T = TypeVar("T")


@dataclass(frozen=True)
class ImportResult:
    """What an import brought."""

    slug: str
    rows: int
    files: int
    receipts: int
    renamed: dict[str, str]  # people whose name somebody here bears already: what they are called now
    receipt_key: str  # the other instance's, as the archive names it
    is_vouched_for: bool  # by a key that whoever imported it trusts
    left_out: tuple[str, ...] = ()  # columns of another version, which this one does not have


def read(database: Database, storage: Storage, path: Path, *, trusted: Collection[str] = ()) -> ImportResult:
    """Bring the competition in `path` into this instance.

    trusted: receipt keys of instances whose scores are believed; without one the competition's scores are marked as not
    verified. Columns that another version wrote and this one lacks are left out. Raises InvalidInput for an archive
    that is damaged or not signed by a key that is trusted, and Conflict for a competition that this instance has
    already, or that a newer version computes otherwise.
    """
    try:
        with ZipFile(path) as zipped:
            manifest = read_manifest(zipped)
            key, vouched = str(manifest["receipt_key"])[:KEY_LENGTH], is_vouched_for(manifest, trusted)
            checked = ManifestArchive(zipped, manifest)
            with database.read() as session:
                _check_is_new(session, checked)
            checked.check_files()
            checked.check_references()
            checked.check_contents(storage)
            n_receipts = checked.check_receipts()
            n_files = _store_files(storage, checked)
            with database.write() as session:
                _check_is_new(session, checked)
                renamed = _write_rows(session, checked, key=key, vouched=vouched)
                rows = ((part, row) for part in (PEOPLE, *OWN_PARTS) for row in checked.rows(part))
                left_out = tuple(sorted({name for part, row in rows for name in unknown_columns(part, row)}))
                data: Row = {"archive": manifest["written_at"], "receipt_key": key, "renamed": renamed}
                data |= {"scores_verified": vouched} | ({"left_out": list(left_out)} if left_out else {})
                competition = competition_repository.by_slug(session, checked.slug)
                audit.record(
                    session, None, "competition.imported", competition=competition, subject=checked.slug, data=data
                )
    except BadZipFile as error:
        raise invalid(f"is not an archive: {error}") from error
    except IntegrityError as error:
        raise invalid(f"has rows of another version that this program cannot store: {error.orig}") from error
    rows = sum(manifest["rows"].values())
    return ImportResult(checked.slug, rows, n_files, n_receipts, renamed, key, vouched, left_out)


def _check_is_new(session: Session, checked: ManifestArchive) -> None:
    for slug in checked.slugs:
        if competition_repository.by_slug(session, slug) is not None:
            raise Conflict(
                f"This instance has a competition called {slug!r}. The name is part of a split's seeds, so an "
                "import cannot change it"
            )
    for part in OWN_PARTS:
        if part.is_numbered or "id" not in part.table.c:
            continue
        for some in _some(str(row["id"]) for row in checked.rows(part)):
            known = session.scalar(select(part.table.c.id).where(part.table.c.id.in_(some)).limit(1))
            if known is not None:
                raise Conflict(f"This instance has {known} of {part.name} already: the competition came from here")


def _store_files(storage: Storage, checked: ManifestArchive) -> int:
    keys = checked.keys()
    for key in keys:
        storage.write(key, b"".join(checked.pieces(f"{FILES}{key}")))
    return len(keys)


def _write_rows(session: Session, checked: ManifestArchive, *, key: str, vouched: bool) -> dict[str, str]:
    people, renamed = _write_people(session, checked)
    numbers: dict[int, int] = {}  # of shards: there -> here
    for part in OWN_PARTS:
        rows: Iterable[Row] = checked.rows(part)
        names = _of_people(part)
        ours: Row = {}
        if part.table is Competition.__table__:
            ours = {"archive_key": key, "scores_verified": vouched and checked.competition.get("scores_verified", True)}
        if part.name == "teams":
            rows = _merged_last(rows)
        for some in _some(rows):
            values = [_renumbered(read_row(part, row), part, numbers) | ours for row in some]
            for row in values:
                row |= {name: people[row[name]] for name in names if row.get(name) is not None}
            if part.name == "shards":
                numbers |= _insert_numbered(session, part, [int(row["id"]) for row in some], values)
            else:
                session.execute(insert(part.table), values)
    return renamed


def _write_people(session: Session, checked: ManifestArchive) -> tuple[dict[str, str], dict[str, str]]:
    """Make a placeholder for each person. Return their ids, there -> here, and those who had to be renamed."""
    ids, renamed = {}, {}
    for row in checked.people():
        person = read_row(PEOPLE, row)
        ids[str(person["id"])] = person["id"] = new_id()
        name = str(person["name"])
        if session.scalar(select(Account.id).where(Account.name_key == name_key(name))) is not None:
            renamed[name] = name = f"{name[: NAME_LENGTH - 17]}-{person['id']}"
        session.add(
            Account(**{**person, "name": name}, name_key=name_key(name), password_hash=NO_PASSWORD, disabled_at=now())
        )
        session.flush()
    return ids, renamed


def _of_people(part: Part) -> tuple[str, ...]:
    """Return a table's columns that name accounts."""
    return tuple(
        column.name
        for column in part.table.c
        if any(key.column.table is Account.__table__ for key in column.foreign_keys)
    )


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
            raise invalid("holds teams that were merged in a circle")
        ordered += free
        for team in free:
            del waiting[str(team["id"])]
    return ordered


def _some(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield a few at a time."""
    left = iter(items)
    while some := list(islice(left, CHUNK)):
        yield some
