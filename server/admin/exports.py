"""Exports for organisers: CSV and JSON Lines, streamed line by line, the scores in them."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy.orm import Session

from server.admin import exports_repository as repository
from server.db import Database
from server.leaderboard import service as boards
from server.models.competition import Competition, Visibility

Rows = Iterator[dict[str, Any]]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class Format(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


class Table(StrEnum):
    PUBLIC_LEADERBOARD = "public-leaderboard"
    PRIVATE_LEADERBOARD = "private-leaderboard"
    SUBMISSIONS = "submissions"
    EVALUATIONS = "evaluations"
    AUDIT = "audit"


MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.JSONL: "application/jsonl"}


def lines(database: Database, competition: Competition, table: Table, form: Format) -> Iterator[str]:
    """Yield an export line by line, on a session of its own that ends with it."""
    with database.read() as session:
        rows = rows_of(session, competition, table)
        yield from (as_csv(rows) if form is Format.CSV else as_jsonl(rows))


def rows_of(session: Session, competition: Competition, table: Table) -> Rows:
    """Return the rows of one table of a competition."""
    tables: dict[Table, Callable[[], Rows]] = {
        Table.PUBLIC_LEADERBOARD: lambda: _board(session, competition, Visibility.PUBLIC),
        Table.PRIVATE_LEADERBOARD: lambda: _board(session, competition, Visibility.PRIVATE),
        Table.SUBMISSIONS: lambda: repository.submissions(session, competition.id),
        Table.EVALUATIONS: lambda: repository.evaluations(session, competition.id),
        Table.AUDIT: lambda: repository.audit_events(session, competition.id),
    }
    return tables[table]()


def as_jsonl(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield one JSON object a line."""
    for row in rows:
        yield json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False) + "\n"


def as_csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a header and one line a row. Text that a spreadsheet would run as a formula is preceded by a quote."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    header: list[str] | None = None
    for row in rows:
        if header is None:
            header = list(row)
            writer.writerow(header)
        writer.writerow([_cell(value) for value in row.values()])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _board(session: Session, competition: Competition, visibility: Visibility) -> Rows:
    for row in boards.whole_board(session, competition, visibility).rows:
        yield {
            "rank": row.rank,
            "team": row.entry.team,
            "kind": row.entry.kind.value,
            "score": row.entry.score,
            "interval_low": row.entry.interval_low,
            "interval_high": row.entry.interval_high,
            "tied_group": row.tied_group,
            "submission": row.entry.submission_id,
            "received_at": row.entry.received_at,
            "entries": row.entry.entries,
        }


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _cell(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, dict | list):
        value = json.dumps(value, sort_keys=True)
    if isinstance(value, float):
        return repr(value)  # every bit of it
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
