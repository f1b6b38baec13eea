"""Writes a complete competition into one file: rows, files of the storage, receipts, and a manifest of their hashes.

The file is a zip archive. `manifest.json` is its last entry: its presence says that the archive is intact. The archive
holds the seeds of the splits and private scores: who may read it may cut the private split.

Left out is what serves a moment or one instance: invitations, links and lists of addresses, requests to merge,
webhooks, mails, log-ins, tokens, the shards of a preparation. Of an account only id, name and age go along.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from alembic.script import ScriptDirectory
from sqlalchemy import ColumnElement, Integer, LargeBinary, Select, Table, select, union
from sqlalchemy.orm import Session, joinedload

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server import starter_kit
from server.competitions import competition_repository
from server.competitions.lifecycle import require_no_task
from server.config import Settings
from server.db import Base, Database, UtcDateTime, now
from server.downloads import HashedZip, json_line, plain_row
from server.errors import Conflict
from server.evaluations.results import weights_key
from server.migrate import alembic_config
from server.models.account import Account, AuditEvent
from server.models.competition import Competition, CompetitionOrganiser, Membership, Split, Team
from server.models.evaluation import (
    Announcement,
    Disclosure,
    Evaluation,
    MetricResult,
    PrivateScore,
    PublicScore,
    Rejudging,
    RunLog,
    Shard,
    ShardAttempt,
)
from server.models.participation import CompetitionText, Participant, Question, TermsAcceptance
from server.models.submission import Submission
from server.storage import Storage, content_key, split_key
from server.submissions import receipts

Row = dict[str, Any]
Ids = Sequence[str]  # of a competition and its tasks
ACCOUNT_COLUMNS = ("id", "name", "created_at")
CHUNK = 500
ADDED_LATER = (
    "metric_results",
    "participants",
    "competition_texts",
    "terms_acceptances",
    "questions",
)  # tables that archives written before them do not hold
RENAMED = {  # columns of archives that were written before revision 0014
    ("shards", "strikes"): "failed_attempts",
    ("disclosures", "told_at"): "disclosed_at",
}


@dataclass(frozen=True)
class Part:
    """The rows of one table that belong to a competition."""

    model: type[Base]
    belongs: Callable[[Ids], ColumnElement[bool]]

    @property
    def table(self) -> Table:
        table: Table = self.model.__table__  # type: ignore[assignment]  # every model here is a plain table
        return table

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def is_numbered(self) -> bool:
        """Whether each instance numbers these rows for itself."""
        return "id" in self.table.c and isinstance(self.table.c.id.type, Integer)


def _evaluations(ids: Ids) -> Select[str]:
    mine = select(Submission.id).where(Submission.competition_id.in_(ids))
    return select(Evaluation.id).where(Evaluation.submission_id.in_(mine))


def _by_competition(model: Any) -> Part:
    return Part(model, model.competition_id.in_)


def _by_evaluation(model: Any) -> Part:
    return Part(model, lambda ids: model.evaluation_id.in_(_evaluations(ids)))


def _attempts(ids: Ids) -> ColumnElement[bool]:
    return ShardAttempt.shard_id.in_(select(Shard.id).where(Shard.competition_id.in_(ids)))


OWN_PARTS = (
    Part(Competition, Competition.id.in_),
    _by_competition(CompetitionOrganiser),
    _by_competition(Split),
    _by_competition(Team),
    _by_competition(Membership),
    _by_competition(Submission),
    _by_competition(Rejudging),
    Part(Evaluation, lambda ids: Evaluation.id.in_(_evaluations(ids))),
    _by_competition(Shard),
    Part(ShardAttempt, _attempts),
    _by_evaluation(RunLog),
    _by_evaluation(PublicScore),
    _by_evaluation(PrivateScore),
    _by_evaluation(MetricResult),
    _by_evaluation(Disclosure),
    _by_competition(Announcement),
    _by_competition(Participant),
    _by_competition(CompetitionText),
    _by_competition(TermsAcceptance),
    _by_competition(Question),
    _by_competition(AuditEvent),
)


def _people(ids: Ids) -> ColumnElement[bool]:
    """Return the condition for every account that a row of the competition names."""
    named = [
        select(column).where(part.belongs(ids))
        for part in OWN_PARTS
        for column in part.table.c
        if any(key.column.table is Account.__table__ for key in column.foreign_keys)
    ]
    return Account.id.in_(select(union(*named).subquery().c[0]))


PEOPLE = Part(Account, _people)
PARTS = (PEOPLE, *OWN_PARTS)


def rows(session: Session, part: Part, ids: Ids) -> Iterator[Row]:
    """Yield a part's rows of a competition and its tasks as JSON holds them, a few at a time; parents first."""
    names = ACCOUNT_COLUMNS if part is PEOPLE else tuple(column.name for column in part.table.c)
    columns = [part.table.c[name] for name in names]
    order = [*([part.table.c.parent_id.is_not(None)] if "parent_id" in part.table.c else []), *part.table.primary_key]
    statement = select(*columns).where(part.belongs(ids)).order_by(*order)
    for row in session.execute(statement.execution_options(yield_per=CHUNK)).mappings():
        yield plain_row(dict(row))


def read_row(part: Part, row: Mapping[str, Any]) -> Row:
    """Return what `rows` gave as the database takes it, without columns that are not known here."""
    present = {RENAMED.get((part.name, name), name): value for name, value in row.items()}
    return {name: _parsed(part.table.c[name].type, value) for name, value in present.items() if name in part.table.c}


def unknown_columns(part: Part, row: Mapping[str, Any]) -> set[str]:
    """Return the columns of a row that `read_row` leaves out, each with its table."""
    return {f"{part.name}.{name}" for name in row if RENAMED.get((part.name, name), name) not in part.table.c}


def _parsed(kind: object, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, UtcDateTime):
        return datetime.fromisoformat(value)
    return base64.b64decode(value) if isinstance(kind, LargeBinary) else value


FORMAT = "lethe-competition/1"
MANIFEST = "manifest.json"
ROWS, FILES, RECEIPTS = "rows/", "files/", "receipts/"


@dataclass(frozen=True)
class ExportResult:
    """What an export put into its file."""

    slug: str
    rows: int
    files: int
    receipts: int


def write(database: Database, storage: Storage, settings: Settings, *, slug: str, path: Path) -> ExportResult:
    """Write the competition to a new file, rows of one moment. Raises NotFound, Conflict, HostFault."""
    if path.exists():
        raise Conflict(f"{path} exists; name another file")
    part = path.with_name(f".{path.name}.part")
    try:
        with database.read() as session, part.open("xb") as raw, ZipFile(raw, "w") as zipped:
            if session.get_bind().dialect.name == "postgresql":  # every statement sees the database as it is now
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            competition = competition_repository.by_slug(session, slug)
            if competition is None:
                raise NotFound(f"No competition is called {slug!r}")
            require_no_task(competition)
            part.chmod(0o600)
            written = _write(session, storage, settings, competition, archive=HashedZip(zipped, now()))
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return written


def _write(
    session: Session, storage: Storage, settings: Settings, competition: Competition, *, archive: HashedZip
) -> ExportResult:
    evaluated = [competition, *competition_repository.tasks(session, competition.id)]
    ids = [each.id for each in evaluated]
    counts = {}
    for part in PARTS:
        lines = _Counted(rows(session, part, ids))
        archive.add(f"{ROWS}{part.name}.jsonl", lines, compress=True)
        counts[part.name] = lines.count
    keys = list(dict.fromkeys(key for each in evaluated for key in _keys(session, storage, each)))
    for key in keys:
        archive.add(f"{FILES}{key}", storage.chunks(key), compress=False)
    signed = [receipt for each in evaluated for receipt in _receipts(session, settings, each)]
    for name, receipt in signed:
        archive.add(f"{RECEIPTS}{name}.json", [json.dumps(receipt, sort_keys=True).encode()], compress=True)
    manifest = {
        "format": FORMAT,
        "competition": competition.slug,
        "schema": ScriptDirectory.from_config(alembic_config("sqlite://")).get_current_head() or "",
        "written_at": archive.at.isoformat(),
        "receipt_key": receipts.public_key_text(settings),
        "rows": counts,
        "entries": archive.entries,
    }
    manifest["signature"] = receipts.sign(settings, manifest)
    archive.zip.writestr(MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))
    return ExportResult(competition.slug, sum(counts.values()), len(keys), len(signed))


class _Counted:
    """Rows as lines of JSON, counted on their way."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for row in self._rows:
            self.count += 1
            yield json_line(row).encode()


def _keys(session: Session, storage: Storage, competition: Competition) -> Iterator[str]:
    """Yield the storage's keys that the competition needs."""
    mine = Submission.competition_id == competition.id
    for sha256 in session.scalars(select(Submission.content_sha256).where(mine).distinct().order_by("content_sha256")):
        if storage.exists(content_key(sha256)):  # what was cancelled before it ran may be collected
            yield content_key(sha256)
    results = select(Shard.result_key).where(Shard.competition_id == competition.id, Shard.result_key.is_not(None))
    for key in dict.fromkeys(session.scalars(results.order_by(Shard.id))):  # outputs scored again have one file
        yield str(key)
        if storage.exists(weights_key(str(key))):
            yield weights_key(str(key))
    for split in session.scalars(select(Split).where(Split.competition_id == competition.id).order_by(Split.id)):
        yield from sorted(storage.keys(split_key(competition.slug, split.visibility, split.version)))
    yield from starter_kit.stored_keys(storage, competition.slug)


def _receipts(session: Session, settings: Settings, competition: Competition) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the receipt of every score that counts."""
    for visibility, table in ((Visibility.PUBLIC, PublicScore), (Visibility.PRIVATE, PrivateScore)):
        scored = (
            select(Submission)
            .join(Evaluation, Evaluation.submission_id == Submission.id)
            .join(Split, Split.id == Evaluation.split_id)
            .join(table, table.evaluation_id == Evaluation.id)
            .where(Submission.competition_id == competition.id, Evaluation.is_current.is_(True))
            .options(joinedload(Submission.competition))
        )
        for submission in session.scalars(scored.order_by(Submission.received_at, Submission.id)).all():
            receipt = receipts.issue(session, settings, submission, visibility, is_organiser=True)
            yield f"{submission.id}-{visibility.value}", receipt
