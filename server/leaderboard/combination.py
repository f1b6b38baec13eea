"""Several tasks' scores combined: the rules of `[combine]`, the interval of the result, and ties.

The standard error of a combined score comes from the draws that the tasks' intervals come from: the replicates, which
leave out random halves of the models (lethe.metrics.scoring.resampling). Each task has models of its own, so its score
errs independently of the others'. A draw of the combination therefore puts one draw of each task together, in an order
that is shuffled for each task: replicate b of every task leaves out models of the same numbers, which must not line up.
One order lines some up by chance, which moved standard errors by a tenth; so the draws are shuffled again and again.
The order is the same for all teams, so what two teams share cancels in their difference, as in the paired test of one
task. That needs no formula for each rule: it holds for the mean of ranks and for the worst task as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.competition.file import CompetitionFile
from lethe.competition.task import Combine, task_name
from lethe.competition.visibility import Visibility
from server.disclosure import gate
from server.disclosure.gate import ShownNumber
from server.evaluations.paired_test import NORMAL_QUANTILE_95, SIGNIFICANCE, two_sided_p_value
from server.leaderboard.ranking import BoardColumn, ColumnValue, Entry, Row, RowKind

Floats = NDArray[np.float64]
MAX_DRAWS = 2048  # that more shuffles are made up to


@dataclass(frozen=True)
class Combined:
    """A team's combined score. standard_error: over models; None without replicates that fit together."""

    score: float
    standard_error: float | None = None
    tied_group: int | None = None


@dataclass(frozen=True)
class TaskScore:
    """A team's score in one task, and the replicates that were stored with it."""

    score: float
    replicates: Mapping[str, Any] | None = None


def combine(
    standings: Sequence[Mapping[str, TaskScore]],
    rule: Combine,
    *,
    names: Sequence[str],
    ranked: Sequence[bool],
    with_errors: bool = False,
) -> list[Combined | None]:
    """Return what each team's scores come to, None for one that lacks a task where that is refused, or lacks all.

    standings: of each team, by the task's name. names: of all tasks. ranked: which teams rank; the others, references,
    change nobody's rank. with_errors: with standard errors, and groups of ranked teams that the paired test does not
    tell apart, counted from 0 at the top; where a replicate is missing or not paired there are none.
    """
    kept = [place for place, own in enumerate(standings) if own and (rule.missing == "zero" or set(names) <= set(own))]
    combined: list[Combined | None] = [None] * len(standings)
    if not kept:
        return combined
    teams, counts = [standings[place] for place in kept], np.array([ranked[place] for place in kept])
    weights = np.array([rule.weights.get(name, 1.0) for name in names])
    scores = np.array([[own[name].score if name in own else 0.0 for name in names] for own in teams])
    values = combined_scores(scores, rule.by, weights=weights, counts=counts)
    draws = _draws(teams, scores, names) if with_errors else None
    moved = None if draws is None else combined_scores(draws, rule.by, weights=weights, counts=counts)
    groups = {} if moved is None else _tied_groups(values, moved, counts)
    for row, place in enumerate(kept):
        error = None if moved is None else float(moved[:, row].std(ddof=1))
        combined[place] = Combined(float(values[row]), error, groups.get(row))
    return combined


def combined_scores(scores: Floats, by: str, *, weights: Floats, counts: NDArray[np.bool_]) -> Floats:
    """Return the combined scores, shape (..., teams), the higher the better.

    scores: shape (..., teams, tasks), >= 0. weights: of the tasks, > 0. counts: which teams rank.

    rank-mean: with n ranked teams and r the weighted mean of a team's ranks (equal scores share the middle of theirs),
    (n + 1 - r) / n: 1 for the first in every task, 1 / n for the last.
    """
    if by == "worst":
        return np.asarray(scores.min(axis=-1))
    if by == "harmonic-mean":
        with np.errstate(divide="ignore"):
            return np.asarray(weights.sum() / (weights / scores).sum(axis=-1))
    if by == "rank-mean":
        n = max(1, int(counts.sum()))
        scores = (n + 1 - _ranks(scores, counts)) / n
    return np.asarray((scores * weights).sum(axis=-1) / weights.sum())


def _ranks(scores: Floats, counts: NDArray[np.bool_]) -> Floats:
    """Return each team's rank in each task among those that count, from 1; equal scores share the middle of theirs."""
    ranks = np.empty_like(scores)
    others = scores[..., counts, :]
    for team in range(scores.shape[-2]):
        own = scores[..., team : team + 1, :]
        above, equal = (others > own).sum(axis=-2), (others == own).sum(axis=-2)
        ranks[..., team, :] = 1 + above + np.maximum(0, equal - int(counts[team])) / 2
    return ranks


def _draws(teams: Sequence[Mapping[str, TaskScore]], scores: Floats, names: Sequence[str]) -> Floats | None:
    """Return draws of all scores, shape (draws, teams, tasks); None where some are missing or not paired."""
    columns = [_draws_of_task([own.get(name) for own in teams], place) for place, name in enumerate(names)]
    if any(column is None for column in columns):
        return None
    known = [column for column in columns if column is not None and column.size]
    least = min((len(column) for column in known), default=0)
    if not least:
        return None
    draws = np.repeat(scores[np.newaxis], least, axis=0)
    for place, column in enumerate(columns):
        if column is not None and column.size:
            draws[:, :, place] += column[:least]
    return np.maximum(draws, 0.0)


def _draws_of_task(scores: Sequence[TaskScore | None], place: int) -> Floats | None:
    """Return how far each score moves, shape (draws, teams), 0 for a missing one; None if they are not paired."""
    replicates = [each.replicates for each in scores if each is not None]
    if not replicates:
        return np.empty((0, len(scores)))
    if any(each is None for each in replicates):
        return None
    drawn = {(each["seed"], each["n_models"], len(each["headline"])) for each in replicates if each is not None}
    if len(drawn) != 1:
        return None
    length = drawn.pop()[2]
    moves = np.zeros((length, len(scores)))
    for column, each in enumerate(scores):
        if each is not None and each.replicates is not None:
            headline = np.asarray(each.replicates["headline"], np.float64)
            moves[:, column] = float(each.replicates["factor"]) * (headline - headline.mean())
    shuffled = np.random.default_rng(place)
    orders = [shuffled.permutation(length) for _ in range(max(1, MAX_DRAWS // length))]
    return None if np.isnan(moves).any() else moves[np.concatenate(orders)]


def _tied_groups(values: Floats, moved: Floats, counts: NDArray[np.bool_]) -> dict[int, int]:
    """Return the group of each ranked team, by its place, as the paired test of one task makes them."""
    groups: dict[int, int] = {}
    head, group = -1, -1
    for row in sorted(np.flatnonzero(counts), key=lambda row: -values[row]):
        error = 0.0 if head < 0 else float((moved[:, head] - moved[:, row]).std(ddof=1))
        if head < 0 or two_sided_p_value(float(values[head] - values[row]), error) < SIGNIFICANCE:
            head, group = int(row), group + 1
        groups[int(row)] = group
    return groups


def interval(combined: Combined) -> tuple[float, float] | None:
    """Return the 95 % interval, value +- 1.96 standard errors, cut off at 0 below, as that of one task's score."""
    if combined.standard_error is None:
        return None
    reach = NORMAL_QUANTILE_95 * combined.standard_error
    return max(0.0, combined.score - reach), combined.score + reach


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
    combined = combine([scores], rule, names=list(scores), ranked=[True])[0]
    return None if combined is None else gate.show_score(combined.score)


def of_one(scores: Mapping[str, ShownNumber], file: CompetitionFile) -> ShownNumber | None:
    """Return what one submission's scores, by task, come to; None for ranks, and where a missing task is refused."""
    if file.combine.by == "rank-mean":
        return None
    names = [task_name(task.slug) for task in file.tasks]
    own = {name: TaskScore(score) for name, score in scores.items()}
    combined = combine([own], file.combine, names=names, ranked=[True])[0]
    return None if combined is None else gate.show_score(combined.score)


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
    combinations = combine(
        [{name: _score(entry, replicates or {}) for name, entry in of_team.items()} for of_team in own],
        rule,
        names=[board.name for board in boards],
        ranked=[_kind(of_team.values()) is RowKind.TEAM for of_team in own],
        with_errors=replicates is not None,
    )
    return [
        _entry(list(of_team.values()), combined, visibility, activity.get(team))
        for team, of_team, combined in zip(teams, own, combinations, strict=True)
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
