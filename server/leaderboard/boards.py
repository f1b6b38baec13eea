"""The boards of a competition: who sees which, and what stands on them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import count

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server.competitions import competitions, lifecycle
from server.competitions.lifecycle import is_revealed
from server.competitions.stored_file import stored_file
from server.cost_cache import CostCache
from server.disclosure import gate
from server.disclosure.gate import ShownNumber
from server.leaderboard import board_repository, combination
from server.leaderboard.combination import TaskBoard
from server.leaderboard.ranking import (
    BoardColumn,
    Entry,
    Row,
    RowKind,
    Rung,
    Try,
    board_columns,
    climb,
    columns_for_participants,
    rank,
)
from server.models.account import Account
from server.models.competition import Competition

ORACLE_NAME = "Oracle"
AXIS_HEADROOM = 1.02


@dataclass(frozen=True)
class Board:
    """A complete board, as organisers see it."""

    visibility: Visibility
    oracle: ShownNumber | None
    rows: tuple[Row, ...]
    n_models: int  # N: runs behind each score; scores of another N are not on the board
    columns: tuple[BoardColumn, ...] = ()
    version: int = field(default_factory=count().__next__, compare=False)  # tells boards of one process apart

    @cached_property
    def teams(self) -> int:
        return sum(row.rank is not None for row in self.rows)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each team's line stands, from 0."""
        return {row.entry.team_id: place for place, row in enumerate(self.rows)}

    @cached_property
    def leader(self) -> Row | None:
        return next((row for row in self.rows if row.rank == 1), None)

    @cached_property
    def interval_scale(self) -> float | None:
        """Where the axis of the intervals ends: beyond every interval and the oracle; None if no line has one."""
        ends = [row.entry.interval_high for row in self.rows if row.entry.interval_high is not None]
        return AXIS_HEADROOM * max(*ends, self.oracle or 0.0, 1e-9) if ends else None

    @cached_property
    def sought_names(self) -> list[str]:
        """The team's name of each line, normalised for searching."""
        return [row.entry.team.casefold() for row in self.rows]

    def worked_out(self) -> "Board":
        """Return this board with all that pages ask of a complete board, so that no request has to work it out."""
        for name in ("teams", "places", "leader", "interval_scale", "sought_names"):
            getattr(self, name)
        return self

    def for_participants(self, columns: tuple[BoardColumn, ...]) -> "Board":
        """Return the board without what only organisers see. columns: those that everybody may see."""
        rows = tuple(row for row in self.rows if row.entry.kind is not RowKind.DISQUALIFIED)
        if len(rows) == len(self.rows) and columns == self.columns:
            return self
        return Board(self.visibility, self.oracle, rows, self.n_models, columns)

    def get_row(self, team_id: str) -> Row | None:
        place = self.places.get(team_id)
        return None if place is None else self.rows[place]

    def matching(self, query: str) -> tuple[Row, ...]:
        """Return the rows whose team's name holds `query`; all of them if it is empty."""
        wanted = query.strip().casefold()
        if not wanted:
            return self.rows
        return tuple(row for row, name in zip(self.rows, self.sought_names, strict=True) if wanted in name)


_boards: CostCache[tuple[Board, Board]] = CostCache()


def board(
    session: Session, competition: Competition, visibility: Visibility, *, viewer: Account | None, phase: str = ""
) -> Board:
    """Return the board as `viewer` may see it. Raises NotRevealed for a private board that is still sealed."""
    organiser = competitions.is_organiser(session, competition, viewer)
    return board_for(session, competition, visibility, organiser=organiser, phase=phase)


def board_for(
    session: Session, competition: Competition, visibility: Visibility, *, organiser: bool, phase: str = ""
) -> Board:
    """Return the board, also of one phase, as organisers or others see it. Raises NotRevealed or NotFound."""
    check_phase(competition, visibility, phase)
    if visibility is Visibility.PRIVATE and not gate.may_see_private(competition, organiser=organiser):
        raise gate.sealed(competition)
    bind, competition_id = session.get_bind(), competition.id

    def again() -> tuple[Board, Board]:
        with Session(bind) as own:
            return _both_views(own, competitions.of_id(own, competition_id), visibility, phase)

    key = (id(bind.engine), competition_id, visibility, phase)
    whole, public = _boards.get(key, lambda: _both_views(session, competition, visibility, phase), in_background=again)
    return whole if organiser else public


def whole_board(session: Session, competition: Competition, visibility: Visibility, phase: str = "") -> Board:
    """Return the board as it is now, sealed or not, with tasks their combination. For organisers and the instance."""
    if tasks := competitions.tasks(session, competition):
        return _combined_board(session, competition, tasks, visibility, phase)
    show_ties = stored_file(competition).scoring.show_intervals
    oracle = gate.get_oracle_score(competitions.get_split(session, competition, visibility))
    entries = _entries(session, competition, visibility, phase)
    if oracle is not None:
        entries.append(Entry(team_id="", team=ORACLE_NAME, kind=RowKind.ORACLE, score=oracle))
    rows = tuple(rank(entries, oracle=oracle, show_ties=show_ties))
    submissions = [row.entry.submission_id for row in rows if row.entry.submission_id]
    n_models = stored_file(competition).n_models
    return Board(visibility, oracle, rows, n_models, board_columns(session, competition, visibility, submissions))


def _combined_board(
    session: Session, competition: Competition, tasks: Sequence[Competition], visibility: Visibility, phase: str
) -> Board:
    own = [whole_board(session, task, visibility, phase) for task in tasks]
    boards = [
        TaskBoard(str(task.task_name), task.title, board.rows, board.oracle)
        for task, board in zip(tasks, own, strict=True)
    ]
    shows_intervals = all(stored_file(task).scoring.show_intervals for task in tasks)
    with_intervals = shows_intervals and not gate.shows_ladder(competition, visibility)
    submissions = [row.entry.submission_id for board in own for row in board.rows if row.entry.submission_id]
    rule = stored_file(competition).combine
    entries = combination.entries(
        boards,
        rule,
        visibility,
        replicates=board_repository.replicates(session, visibility, submissions) if with_intervals else None,
        activity=board_repository.activity(session, competition.id, phase=phase),
    )
    oracle = combination.oracle(boards, rule)
    if oracle is not None:
        entries.append(Entry(team_id="", team=ORACLE_NAME, kind=RowKind.ORACLE, score=oracle))
    rows = tuple(rank(entries, oracle=oracle, show_ties=with_intervals))
    columns = combination.columns(boards)
    return Board(visibility, oracle, rows, min(board.n_models for board in own), columns)


def published_board(session: Session, competition: Competition, visibility: Visibility, phase: str = "") -> Board:
    """Return the board that everybody may see. Raises NotRevealed for a sealed one."""
    if visibility is Visibility.PRIVATE and not gate.may_see_private(competition, organiser=False):
        raise gate.sealed(competition)
    return _both_views(session, competition, visibility, phase)[1]


def shake_up(session: Session, competition: Competition, private: Sequence[Row], *, organiser: bool) -> dict[str, int]:
    """Return how many ranks each of these teams rose (positive) or fell from the public to the private board."""
    public = board_for(session, competition, Visibility.PUBLIC, organiser=organiser)
    moves = {}
    for row in private:
        before = public.get_row(row.entry.team_id)
        if row.rank and before and before.rank:
            moves[row.entry.team_id] = before.rank - row.rank
    return moves


def scores_over_time(
    session: Session, competition: Competition, team_ids: Sequence[str]
) -> Sequence[tuple[str, datetime, ShownNumber]]:
    """Return team, moment and public score of every scored submission, oldest first; on a ladder, its rungs."""
    n_models = stored_file(competition).n_models
    if not gate.shows_ladder(competition):
        rows = board_repository.best_over_time(session, competition.id, team_ids, n_models=n_models)
        return [(team_id, at, gate.show_score(score)) for team_id, at, score in rows]
    step = stored_file(competition).board.step
    tries = board_repository.tries(session, competition.id, n_models=n_models, team_ids=team_ids)
    climbed = [
        (team_id, attempt.received_at, gate.show_score(rung.score))
        for team_id, own in tries.items()
        for attempt, rung in zip(own, climb(own, step=step).values(), strict=True)
    ]
    return sorted(climbed, key=lambda row: row[1])


def check_phase(competition: Competition, visibility: Visibility, phase: str) -> None:
    """Raise NotFound for a phase that the competition does not have, or whose submissions have no private scores."""
    names = lifecycle.phase_names(stored_file(competition))
    if phase and (phase not in names or visibility is Visibility.PRIVATE):
        there = ", ".join(names) or "none"
        raise NotFound(f"{competition.slug} has no leaderboard of {phase!r} on this split; phases: {there}")


def _both_views(session: Session, competition: Competition, visibility: Visibility, phase: str) -> tuple[Board, Board]:
    whole = whole_board(session, competition, visibility, phase)
    columns = whole.columns
    if not stored_file(competition).tasks:  # a task's scores stand on its own board
        columns = columns_for_participants(competition, visibility, columns)
    public = whole.for_participants(columns)
    return whole.worked_out(), public.worked_out()


def _entries(session: Session, competition: Competition, visibility: Visibility, phase: str) -> list[Entry]:
    """Return what each team is ranked by: its best score, or its value on the ladder."""
    file = stored_file(competition)
    if not gate.shows_ladder(competition, visibility):
        intervals = file.scoring.show_intervals
        entries = board_repository.entries(
            session, competition.id, visibility, n_models=file.n_models, with_intervals=intervals, phase=phase
        )
        return [_as_shown(entry, visibility) for entry in entries]
    entries = board_repository.entries(
        session, competition.id, visibility, n_models=file.n_models, with_intervals=False, phase=phase
    )
    tries = board_repository.tries(session, competition.id, n_models=file.n_models, phase=phase)
    step = file.board.step
    return [_on_ladder(entry, tries[entry.team_id], step=step) for entry in entries if entry.team_id in tries]


def _as_shown(entry: Entry, visibility: Visibility) -> Entry:
    score, low, high = (
        None if value is None else gate.show_score(value, visibility)
        for value in (entry.score, entry.interval_low, entry.interval_high)
    )
    return entry._replace(score=score, interval_low=low, interval_high=high)


def _on_ladder(entry: Entry, tries: Sequence[Try], *, step: float) -> Entry:
    """Return the entry as the submission that last moved it, of which alone the board may tell."""
    *_, rung = climb(tries, step=step).values()
    return entry._replace(
        submission_id=rung.submission_id,
        score=gate.show_score(rung.score),
        received_at=rung.received_at,
        mode=rung.mode,
        tied_group=None,
        kind=_kind_on_ladder(entry.kind, rung),
    )


def _kind_on_ladder(kind: RowKind, rung: Rung) -> RowKind:
    if kind not in (RowKind.TEAM, RowKind.UNCONFIRMED):
        return kind
    return RowKind.UNCONFIRMED if rung.is_unconfirmed else RowKind.TEAM


def ladder_rungs(session: Session, competition: Competition, team_ids: Sequence[str]) -> dict[str, Rung]:
    """Return what a team is shown as its score after each submission, by submission id."""
    file = stored_file(competition)
    step = file.board.step
    return {
        submission_id: rung
        for phase in (*lifecycle.phase_names(file), "")
        for own in board_repository.tries(
            session, competition.id, n_models=file.n_models, team_ids=team_ids, phase=phase
        ).values()
        for submission_id, rung in climb(own, step=step).items()
    }


@dataclass(frozen=True)
class Summary:
    """One board in short. best: None where the board is a ladder, which hides it."""

    teams: int
    best: ShownNumber | None
    share_of_oracle: ShownNumber | None


NOTHING = Summary(0, None, None)
_Summaries = dict[tuple[str, Visibility], Summary]
_kept: CostCache[_Summaries] = CostCache()


def summary(session: Session, competition: Competition) -> Summary:
    """Return the board that everybody may see: the private one once it is revealed."""
    bind = session.get_bind()

    def again() -> _Summaries:
        with Session(bind) as own:
            return _every(own)

    every = _kept.get(id(bind.engine), lambda: _every(session), in_background=again)
    visibility = Visibility.PRIVATE if is_revealed(competition) else Visibility.PUBLIC
    if stored_file(competition).tasks:
        board = board_for(session, competition, visibility, organiser=False)
        best = board.leader.entry.score if board.leader else None
        result = Summary(board.teams, best, gate.share_of(best, board.oracle))
    else:
        result = every.get((competition.id, visibility), NOTHING)
    return Summary(result.teams, None, None) if gate.shows_ladder(competition, visibility) else result


def _every(session: Session) -> _Summaries:
    marks = {
        (competition_id, Visibility(visibility)): float((oracle or {}).get("final_score", 0.0))
        for competition_id, visibility, oracle in board_repository.oracles(session)
    }
    return {
        (competition_id, visibility): Summary(teams, best, gate.share_of(best, mark))
        for visibility in Visibility
        for competition_id, teams, highest in board_repository.best_scores(session, visibility)
        for best in (gate.show_score(highest, visibility),)
        for mark in (marks.get((competition_id, visibility), 0.0),)
    }
