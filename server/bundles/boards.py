"""The leaderboards of a competition that is over, as data: official ones, of phases, of late submissions, of tasks."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.metrics.scoring.sample_size import smallest_detectable_shift
from server.competitions import phases
from server.competitions.stored_file import stored_file
from server.leaderboard import service as boards
from server.leaderboard.columns import board_row
from server.leaderboard.ranking import Row
from server.leaderboard.service import Board
from server.models.competition import Competition


def all_boards(session: Session, competition: Competition, tasks: Sequence[Competition]) -> list[dict[str, Any]]:
    """Return every board as everybody may see it, the competition's own before those of its tasks."""
    return [board for each in (competition, *tasks) for board in _of_one(session, each)]


def _of_one(session: Session, competition: Competition) -> Iterator[dict[str, Any]]:
    for visibility in (Visibility.PRIVATE, Visibility.PUBLIC):
        found = boards.published_board(session, competition, visibility)
        yield _as_data(found, competition, visibility, "")
    for phase in phases.names(stored_file(competition)):
        found = boards.published_board(session, competition, Visibility.PUBLIC, phase)
        yield _as_data(found, competition, Visibility.PUBLIC, phase)


def _as_data(board: Board, competition: Competition, visibility: Visibility, phase: str) -> dict[str, Any]:
    return {
        "task": competition.task_name or "",
        "title": competition.title,
        "split": visibility.value,
        "phase": phase,
        "oracle": board.oracle,
        "n_models": board.n_models,
        "smallest_detectable_shift": smallest_detectable_shift(board.n_models),
        "columns": [
            {name: getattr(column, name) for name in ("id", "title", "unit", "direction", "oracle", "original")}
            for column in board.columns
        ],
        "rows": [_row(row, board) for row in board.rows],
    }


def _row(row: Row, board: Board) -> dict[str, Any]:
    """Return what everybody sees; ids of teams are this instance's."""
    shown = board_row(row, board.columns)
    del shown["team_id"]
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in shown.items()}
