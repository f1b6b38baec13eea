"""Where a submission received at one moment belongs: a phase before the close, late, or nowhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lethe.competition.file import CompetitionFile
from lethe.competition.sections import LATE, Phase
from server.competitions import lifecycle
from server.competitions.stored_file import stored_file
from server.models.competition import Competition, CompetitionState, Team

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
    if lifecycle.accepts_submission(competition, at, until=deadline(competition, team)):
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


def names(file: CompetitionFile) -> list[str]:
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
