"""What stands on the board of a competition with tasks: each team's lines on the boards of the tasks, combined.

A team's score in a task is the one on that task's board: its best, its value on the ladder, or of its finals the best.
So the combined board tells nothing that the tasks' boards do not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lethe.competition.file import CompetitionFile
from lethe.competition.tasks_section import Combine, task_name
from lethe.competition.visibility import Visibility
from server.disclosure import gate
from server.disclosure.gate import ShownNumber
from server.leaderboard.columns import BoardColumn, ColumnValue
from server.leaderboard.combination import Combined, TaskScore, combine, interval
from server.leaderboard.ranking import Entry, Row, RowKind


@dataclass(frozen=True)
class TaskBoard:
    """The board of one task, as it goes into the combination."""

    name: str
    title: str
    rows: Sequence[Row]
    oracle: ShownNumber | None

    @property
    def entries(self) -> dict[str, Entry]:
        """The line of each team, by its id."""
        return {row.entry.team_id: row.entry for row in self.rows if row.entry.team_id}


class TaskColumn(BoardColumn):
    """A task's scores; values: by the team's id."""

    def get(self, entry: Entry) -> ColumnValue | None:
        if entry.kind is RowKind.ORACLE:
            return None if self.oracle is None else ColumnValue(self.oracle)
        return self.values.get(entry.team_id)


def columns(boards: Sequence[TaskBoard]) -> tuple[BoardColumn, ...]:
    """Return a column for each task with its scores and their intervals, as its own board shows them."""
    return tuple(
        TaskColumn(
            id=board.name,
            title=board.title,
            unit="",
            direction="higher",
            oracle=board.oracle,
            original=None,
            values={
                team: ColumnValue(entry.score, entry.interval_low, entry.interval_high)
                for team, entry in board.entries.items()
            },
        )
        for board in boards
    )


def oracle(boards: Sequence[TaskBoard], rule: Combine) -> ShownNumber | None:
    """Return what exact retraining's scores come to; None for ranks, and where a task has none."""
    scores = {board.name: TaskScore(board.oracle) for board in boards if board.oracle is not None}
    if rule.by == "rank-mean" or len(scores) < len(boards):
        return None
    found = combine([scores], rule, names=list(scores), ranked=[True])[0]
    return None if found is None else gate.show_score(found.score)


def of_one(scores: Mapping[str, ShownNumber], file: CompetitionFile) -> ShownNumber | None:
    """Return what one submission's scores, by task, come to; None for ranks, and where a missing task is refused."""
    if file.combine.by == "rank-mean":
        return None
    names = [task_name(task.slug) for task in file.tasks]
    own = {name: TaskScore(score) for name, score in scores.items()}
    found = combine([own], file.combine, names=names, ranked=[True])[0]
    return None if found is None else gate.show_score(found.score)


def entries(
    boards: Sequence[TaskBoard],
    rule: Combine,
    visibility: Visibility,
    *,
    replicates: Mapping[str, Mapping[str, Any]] | None,
    activity: Mapping[str, tuple[int, datetime]],
) -> list[Entry]:
    """Return each team's combined entry.

    replicates: of the submissions on the boards, by their ids; None where no intervals are shown. activity: how many
    submissions of each team there were, and when the last came, by the team's id.
    """
    lines = {board.name: board.entries for board in boards}
    teams = list(dict.fromkeys(team for own in lines.values() for team in own))
    own = [{name: line[team] for name, line in lines.items() if team in line} for team in teams]
    found = combine(
        [{name: _score(entry, replicates or {}) for name, entry in of_team.items()} for of_team in own],
        rule,
        names=[board.name for board in boards],
        ranked=[_kind(of_team.values()) is RowKind.TEAM for of_team in own],
        with_errors=replicates is not None,
    )
    return [
        _entry(list(of_team.values()), combined, visibility, activity.get(team))
        for team, of_team, combined in zip(teams, own, found, strict=True)
        if combined is not None
    ]


def _kind(own: Iterable[Entry]) -> RowKind:
    """Return what a team's combined line is: unconfirmed where one of its scores is."""
    kinds = [entry.kind for entry in own]
    return RowKind.UNCONFIRMED if RowKind.UNCONFIRMED in kinds else kinds[0]


def _score(entry: Entry, replicates: Mapping[str, Mapping[str, Any]]) -> TaskScore:
    return TaskScore(entry.score or 0.0, replicates.get(entry.submission_id or ""))


def _entry(
    own: Sequence[Entry], combined: Combined, visibility: Visibility, activity: tuple[int, datetime] | None
) -> Entry:
    """Return a team's line. Its moment is that of the last score that it is made of."""
    ends = interval(combined)
    low, high = (None, None) if ends is None else (gate.show_score(end, visibility) for end in ends)
    moments = [entry.received_at for entry in own if entry.received_at is not None]
    last = [entry.last_entry_at for entry in own if entry.last_entry_at is not None]
    n_entries, last_entry_at = activity or (max(entry.entries for entry in own), max(last, default=None))
    return Entry(
        team_id=own[0].team_id,
        team=own[0].team,
        kind=_kind(own),
        score=gate.show_score(combined.score, visibility),
        received_at=max(moments, default=None),
        interval_low=low,
        interval_high=high,
        tied_group=combined.tied_group,
        entries=n_entries,
        last_entry_at=last_entry_at,
        mode="notebook" if any(entry.mode == "notebook" for entry in own) else "function",
    )
