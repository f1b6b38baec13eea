"""Exports for organisers: CSV and JSON Lines, written line by line, the scores in them."""

import json
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, Violation
from lethe.metrics.scoring.attacks.family import smallest_detectable_shift
from lethe.reports.table import csv_lines
from server.admin import admin_repository
from server.downloads import json_line, plain, spool
from server.leaderboard import boards
from server.leaderboard.ranking import board_row
from server.models.competition import Competition

Rows = Iterator[dict[str, Any]]


class Format(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


class ExportTable(StrEnum):
    PUBLIC_LEADERBOARD = "public-leaderboard"
    PRIVATE_LEADERBOARD = "private-leaderboard"
    SUBMISSIONS = "submissions"
    EVALUATIONS = "evaluations"
    METRICS = "metrics"
    TERMS = "terms"
    AUDIT = "audit"


MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.JSONL: "application/jsonl"}


def spooled(
    session: Session, competition: Competition, table: ExportTable, form: Format, *, phase: str = ""
) -> Iterator[bytes]:
    """Return an export piece by piece."""
    rows = export_rows(session, competition, table, phase=phase)
    lines = as_csv(rows) if form is Format.CSV else map(json_line, rows)
    return spool(lambda file: file.writelines(line.encode() for line in lines))


def export_rows(session: Session, competition: Competition, table: ExportTable, *, phase: str = "") -> Rows:
    """Return the rows of one table. phase: whose public leaderboard. Raises NotFound or InvalidInput."""
    if phase and table is not ExportTable.PUBLIC_LEADERBOARD:
        wrong = f"is for the table {ExportTable.PUBLIC_LEADERBOARD}, not for {table}, whose rows name their phase"
        raise InvalidInput(f"phase {wrong}", violations=(Violation("phase", wrong, phase),))
    tables: dict[ExportTable, Callable[[], Rows]] = {
        ExportTable.PUBLIC_LEADERBOARD: lambda: _board(session, competition, Visibility.PUBLIC, phase),
        ExportTable.PRIVATE_LEADERBOARD: lambda: _board(session, competition, Visibility.PRIVATE),
        ExportTable.SUBMISSIONS: lambda: admin_repository.submissions(session, competition.id),
        ExportTable.EVALUATIONS: lambda: _marked(admin_repository.evaluations(session, competition.id), competition),
        ExportTable.METRICS: lambda: _marked(admin_repository.metrics(session, competition.id), competition),
        ExportTable.TERMS: lambda: admin_repository.acceptances(session, competition.id),
        ExportTable.AUDIT: lambda: admin_repository.audit_events(session, competition.id),
    }
    return tables[table]()


def as_csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a header and one line a row."""
    return csv_lines(_with_header(rows))


def _with_header(rows: Iterable[dict[str, Any]]) -> Iterator[list[Any]]:
    for number, row in enumerate(rows):
        if number == 0:
            yield list(row)
        yield [_cell(value) for value in row.values()]


def _board(session: Session, competition: Competition, visibility: Visibility, phase: str = "") -> Rows:
    boards.check_phase(competition, visibility, phase)
    board = boards.whole_board(session, competition, visibility, phase)
    conditions = {
        "phase": phase,
        "n_models": board.n_models,
        "smallest_detectable_shift": smallest_detectable_shift(board.n_models),
        "verified": competition.scores_verified,
    }
    for row in board.rows:
        shown = board_row(row, board.columns)
        metrics = shown.pop("metrics")
        yield {**shown, **conditions, **{one.id: metrics.get(one.id, {}).get("value") for one in board.columns}}


def _marked(rows: Rows, competition: Competition) -> Rows:
    """Yield rows with a column that says whether values are verified: those of an unsigned archive are not."""
    return ({**row, "verified": competition.scores_verified} for row in rows)


def _cell(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else plain(value)
