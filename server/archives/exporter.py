"""Writes a complete competition into one file: rows, files of the storage, receipts, and a manifest of their hashes.

The file is a zip archive. `manifest.json` is its last entry: its presence says that the archive is intact. The archive
holds the seeds of the splits and private scores: who may read it may cut the private split.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from alembic.script import ScriptDirectory
from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server import starter_kit
from server.archives.tables import PARTS, rows
from server.competitions import competition_repository
from server.competitions.lifecycle import require_no_task
from server.config import Settings
from server.db import Database, now
from server.downloads import HashedZip, json_line
from server.errors import Conflict
from server.evaluations.results import weights_key
from server.migrate import alembic_config
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, PrivateScore, PublicScore, Shard
from server.models.submission import Submission
from server.storage import Storage, content_key, split_key
from server.submissions import receipts

FORMAT = "lethe-competition/1"
MANIFEST = "manifest.json"
ROWS, FILES, RECEIPTS = "rows/", "files/", "receipts/"


@dataclass(frozen=True)
class Written:
    """What an export put into its file."""

    slug: str
    rows: int
    files: int
    receipts: int


def write(database: Database, storage: Storage, settings: Settings, *, slug: str, path: Path) -> Written:
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
) -> Written:
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
    return Written(competition.slug, sum(counts.values()), len(keys), len(signed))


class _Counted:
    """Rows as lines of JSON, counted on their way."""

    def __init__(self, found: Iterable[dict[str, Any]]) -> None:
        self._rows = found
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
