"""States of a competition and its phases, every legal transition, and the deletion of a draft."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.section import as_stored
from lethe.competition.sections import LATE, Phase
from lethe.competition.task import BETWEEN
from server import audit
from server.competitions import competition_repository
from server.competitions.stored_file import stored_file
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Team
from server.notifications import dispatch


def delete_draft(session: Session, competition: Competition, *, actor: Account) -> None:
    """Delete a draft with its file, secrets and organisers; its slug is free again. Raises Conflict."""
    require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if competition.state != CompetitionState.DRAFT:
        raise Conflict(f"{competition.slug} is {competition.state}; only a draft can be deleted, others are archived")
    audit.record(session, actor, "competition.deleted", competition=competition, subject=competition.slug)
    forget_tasks(session, competition)
    _empty(competition)
    session.flush()
    competition_repository.forget(session, competition.id)


def forget_tasks(session: Session, competition: Competition) -> None:
    """Delete the tasks of a draft and their splits; its file may name others, under the same names."""
    for task in competition_repository.tasks(session, competition.id):
        task.task_name = None
        _empty(task)
        session.flush()
        competition_repository.forget(session, task.id)


def _empty(competition: Competition) -> None:
    empty = CompetitionFile.model_validate(
        {
            "slug": f"{competition_repository.DELETED}{competition.id}",
            "title": "Deleted draft",
            "opens_at": datetime(2000, 1, 1, tzinfo=UTC),
            "closes_at": datetime(2000, 1, 2, tzinfo=UTC),
            "dataset": {"name": "digits"},
            "network": {"name": "mlp"},
            "training": {"epochs": 1, "learning_rate": 0.1},
        }
    )
    competition.slug, competition.title, competition.summary = empty.slug, empty.title, ""
    competition.opens_at, competition.closes_at = empty.opens_at, empty.closes_at
    competition.config, competition.source = as_stored(empty), ""


S = CompetitionState

TRANSITIONS: dict[CompetitionState, frozenset[CompetitionState]] = {
    S.DRAFT: frozenset({S.PREPARING, S.ARCHIVED}),
    S.PREPARING: frozenset({S.READY, S.DRAFT}),
    S.READY: frozenset({S.PREPARING, S.DRAFT, S.OPEN, S.ARCHIVED}),  # a draft again: its file was replaced
    S.OPEN: frozenset({S.CLOSED}),
    S.CLOSED: frozenset({S.OPEN, S.PROVISIONAL}),  # open again: the deadline was extended
    S.PROVISIONAL: frozenset({S.CLOSED, S.FINAL}),  # closed again: something is scored again
    S.FINAL: frozenset({S.ARCHIVED}),
    S.ARCHIVED: frozenset(),
}

HIDDEN = frozenset({S.DRAFT, S.PREPARING})  # only its organisers know of it
ENDED = frozenset({S.CLOSED, S.PROVISIONAL, S.FINAL, S.ARCHIVED})
REVEALED = frozenset({S.FINAL, S.ARCHIVED})  # private scores may be shown

ACTIONS = {
    S.PREPARING: "competition.preparing",
    S.DRAFT: "competition.back_to_draft",
    S.READY: "competition.ready",
    S.OPEN: "competition.opened",
    S.CLOSED: "competition.closed",
    S.PROVISIONAL: "competition.provisional",
    S.FINAL: "competition.revealed",
    S.ARCHIVED: "competition.archived",
}

ANNOUNCED = frozenset({S.CLOSED, S.FINAL})  # people and webhooks are notified of these
RESCORED = frozenset({S.CLOSED, S.PROVISIONAL})  # between these, a task moves by itself


def get_state(competition: Competition) -> CompetitionState:
    return CompetitionState(competition.state)


def may_move(competition: Competition, to: CompetitionState) -> bool:
    """Return whether the table of transitions knows this one."""
    return to in TRANSITIONS[get_state(competition)]


def move(
    session: Session, competition: Competition, to: CompetitionState, *, actor: Account | None, reason: str = ""
) -> None:
    """Carry out one transition and record it; where the competition is in that state already, nothing is left to do.

    Its tasks move with it. Raises Conflict naming the states that are allowed. The caller holds the competition's row
    lock (repository.locked), so that a transition happens once.
    """
    if not {get_state(competition), to} <= RESCORED:
        require_no_task(competition)
    for each in (competition, *competition_repository.tasks(session, competition.id)):
        _move(session, each, to, actor=actor, reason=reason)


def require_no_task(competition: Competition) -> None:
    """Raise Conflict for a task: what its competition decides for all tasks is not asked of one."""
    if competition.parent_id is not None:
        whole = whole_slug(competition)
        raise Conflict(f"{competition.slug} is the task {competition.task_name} of {whole}; do this to {whole}")


def whole_slug(competition: Competition) -> str:
    """Return the slug of the competition that a task is one of; of any other its own."""
    is_task = competition.parent_id is not None
    return competition.slug.removesuffix(f"{BETWEEN}{competition.task_name}") if is_task else competition.slug


def _move(
    session: Session, competition: Competition, to: CompetitionState, *, actor: Account | None, reason: str
) -> None:
    if competition.state == to:
        return
    if not may_move(competition, to):
        allowed = ", ".join(sorted(TRANSITIONS[get_state(competition)])) or "none, it is an end"
        raise Conflict(
            f"{competition.slug} is {competition.state} and cannot become {to}; allowed from here: {allowed}"
        )
    data = {"from": competition.state, "to": to.value}
    audit.record(session, actor, ACTIONS[to], competition, reason=reason, data=data)
    competition.state = to.value
    if to in ANNOUNCED and competition.parent_id is None:
        dispatch.notify(session, competition.id, ACTIONS[to], {"competition": competition.slug})


def is_hidden(competition: Competition) -> bool:
    return competition.cell_key is not None or get_state(competition) in HIDDEN


def is_revealed(competition: Competition) -> bool:
    return get_state(competition) in REVEALED


def accepts_submission(competition: Competition, received_at: datetime, *, until: datetime | None = None) -> bool:
    """Return whether a submission received at that moment counts: its time decides, not when the state was moved.

    until: the end for its team; default: the close.
    A ready competition whose hour has come is open although nothing has moved it yet; a closed one still takes
    what was received before the end, until its finals are frozen.
    """
    takes = competition.state in (S.READY, S.OPEN) or (competition.state == S.CLOSED and competition.frozen_at is None)
    return takes and competition.opens_at <= received_at < (until or competition.closes_at)


LATE_STATES = frozenset(
    {CompetitionState.OPEN, CompetitionState.CLOSED, CompetitionState.PROVISIONAL, CompetitionState.FINAL}
)


@dataclass(frozen=True)
class Period:
    """A phase with its limits. name: empty where the file has no phases. counts: its submissions are ranked."""

    name: str
    counts: bool
    per_day: int
    total: int | None


def deadline(competition: Competition, team: Team | None) -> datetime:
    """Return until when a team may submit: the close, or its own extension."""
    extended = team.extended_until if team is not None else None
    return max(competition.closes_at, extended) if extended else competition.closes_at


def period_at(
    competition: Competition, team: Team | None, at: datetime, *, file: CompetitionFile | None = None
) -> Period | None:
    """Return where a submission received at that moment belongs; None if it is not taken. file: default: the stored."""
    file = file or stored_file(competition)
    if accepts_submission(competition, at, until=deadline(competition, team)):
        return _phase_at(file, at)
    late = file.late
    is_late = competition.state in LATE_STATES and at >= competition.closes_at
    if late.accepted and is_late and (late.until is None or at < late.until):
        return _late(file)
    return None


def shown_period(
    competition: Competition, team: Team | None, at: datetime, *, file: CompetitionFile | None = None
) -> Period:
    """Return the period whose quota is shown at that moment: the present one, else the next or the last one."""
    return period_at(competition, team, at, file=file) or _phase_at(file or stored_file(competition), at)


def period_of(competition: Competition, name: str) -> Period:
    """Return the limits of a submission's phase; those of the file for one that it no longer names."""
    file = stored_file(competition)
    if name == LATE:
        return _late(file)
    return next((_period(file, phase) for phase in file.phases if phase.name == name), _without_phases(file))


def allowed_until(competition: Competition, at: datetime) -> Sequence[tuple[Period, datetime, datetime]]:
    """Return each phase that had begun by then with its begin and its end, or the moment where that is earlier."""
    file = stored_file(competition)
    if not file.phases:
        return [(_without_phases(file), competition.opens_at, at)]
    begins = [competition.opens_at, *(phase.begins_at or competition.opens_at for phase in file.phases[1:])]
    ends = [*begins[1:], at]
    return [
        (_period(file, phase), begin, min(end, at))
        for phase, begin, end in zip(file.phases, begins, ends, strict=True)
        if begin <= at
    ]


def phase_names(file: CompetitionFile) -> list[str]:
    """Return the names of the leaderboards beside the official one."""
    return [*(phase.name for phase in file.phases), *([LATE] if file.late.accepted else [])]


def _phase_at(file: CompetitionFile, at: datetime) -> Period:
    begun = [phase for phase in file.phases[1:] if phase.begins_at is not None and phase.begins_at <= at]
    if begun:
        return _period(file, begun[-1])
    return _period(file, file.phases[0]) if file.phases else _without_phases(file)


def _period(file: CompetitionFile, phase: Phase) -> Period:
    return Period(
        name=phase.name,
        counts=phase.counts,
        per_day=phase.submissions_per_day or file.limits.submissions_per_day,
        total=phase.submissions_total or file.limits.submissions_total,
    )


def _without_phases(file: CompetitionFile) -> Period:
    return Period("", True, file.limits.submissions_per_day, file.limits.submissions_total)


def _late(file: CompetitionFile) -> Period:
    return Period(LATE, False, file.late.submissions_per_day or file.limits.submissions_per_day, None)
