"""What is not yet in order before a competition is prepared, opened, closed or revealed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.competitions import competitions, stalled_preparations
from server.dashboard import dashboard
from server.db import now
from server.finals import finals
from server.finals.finals import Rescoring
from server.models.competition import Competition, CompetitionState, Split, SplitState

S = CompetitionState
STEPS = {
    S.DRAFT: ("prepare", "Prepare the splits"),
    S.PREPARING: ("prepare", "Try the failed splits again"),
    S.READY: ("open", "Open now"),
    S.OPEN: ("close", "Close now"),
    S.PROVISIONAL: ("reveal", "Reveal the private leaderboard"),
    S.FINAL: ("archive", "Archive"),
}

ON_ANY_DEVICE = ("prepare-on-any-device", "Begin again with whatever workers there are")


@dataclass(frozen=True)
class Check:
    """One line of the list."""

    text: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True)
class Checklist:
    """The next step of a competition, and what stands in its way."""

    act: str
    label: str
    checks: list[Check]
    rescoring: Rescoring | None

    @property
    def ready(self) -> bool:
        return all(check.ok for check in self.checks)


def checklist(session: Session, competition: Competition) -> Checklist:
    """Return the next step and its checks."""
    splits = list(competitions.splits(session, competition))
    rescoring = finals.rescoring(session, competition) if competition.state in (S.CLOSED, S.PROVISIONAL) else None
    act, label = STEPS.get(S(competition.state), ("", ""))
    if competition.state == S.PREPARING and any(stalled_preparations.is_waiting(split) for split in splits):
        act, label = ON_ANY_DEVICE
    elif competition.state == S.PREPARING and all(split.state != SplitState.FAILED for split in splits):
        act, label = "", ""  # nothing to try again
    return Checklist(act, label, _checks(session, competition, splits, rescoring), rescoring)


def _checks(
    session: Session, competition: Competition, splits: list[Split], rescoring: Rescoring | None
) -> list[Check]:
    at = now()
    names = {task.id: f" of {task.title}" for task in competitions.tasks(session, competition)}
    if competition.state in (S.DRAFT, S.PREPARING):
        return [
            Check("The competition file is valid", ok=True),
            _of_end(competition, at),
            *(_of_split(session, split, names) for split in splits if competition.state == S.PREPARING),
        ]
    if competition.state == S.READY:
        return [*(_of_split(session, split, names) for split in splits), _of_end(competition, at)]
    if competition.state == S.OPEN:
        unfinished = dashboard.count_unfinished(session, competition)
        return [
            Check("The end date has passed", ok=True)
            if competition.closes_at <= at
            else Check("The end date has not come", ok=False, detail="it closes automatically then"),
            Check(
                _still_in_progress(unfinished) or "Every submission has ended",
                ok=not unfinished,
                detail="what came before the end counts" if unfinished else "",
            ),
            _of_unconfirmed(finals.count_unconfirmed(session, competition, Visibility.PUBLIC), Visibility.PUBLIC),
            *(_of_split(session, split, names) for split in splits if split.state != SplitState.READY),
        ]
    return _of_rescoring(rescoring) if rescoring else []


def _of_split(session: Session, split: Split, names: Mapping[str, str]) -> Check:
    stage = f"{split.stage}, {split.progress:.0%}" if split.stage else "waiting for a worker"
    detail = split.error or (stage if split.state == SplitState.PREPARING else "")
    if split.state == SplitState.PENDING:
        detail = detail or split.stage  # what a check of it waits for
    is_ready, called = split.state == SplitState.READY, f"{split.visibility} split{names.get(split.competition_id, '')}"
    if competitions.may_follow(session, split):
        text = f"The models of the {called} may follow after the opening; the close waits for them"
        return Check(text, ok=True, detail=detail)
    return Check(f"The {called} is {'' if is_ready else 'not '}prepared", ok=is_ready, detail=detail)


def _of_end(competition: Competition, at: datetime) -> Check:
    is_ahead = competition.closes_at > at
    return Check(f"The end date is {'in the future' if is_ahead else 'past'}", ok=is_ahead)


def _of_rescoring(rescoring: Rescoring) -> list[Check]:
    is_scored = rescoring.is_frozen and rescoring.scored >= rescoring.finals
    return [
        Check(
            f"The finals are {'' if rescoring.is_frozen else 'not '}frozen",
            ok=rescoring.is_frozen,
            detail="" if rescoring.is_frozen else _still_in_progress(rescoring.waiting_public) or "within seconds",
        ),
        Check(
            "Every final has a private score" if is_scored else "Not every final has a private score",
            ok=is_scored,
            detail=f"{rescoring.scored:,} of {rescoring.finals:,}; "
            f"{rescoring.runs_done:,} of {rescoring.runs_total:,} runs"
            if rescoring.is_frozen
            else "",
        ),
        Check(
            f"Finals that failed: {len(rescoring.failed)}" if rescoring.failed else "No final waits for a decision",
            ok=not rescoring.failed,
            detail="decide below what becomes of them" if rescoring.failed else "",
        ),
        _of_unconfirmed(rescoring.unconfirmed, Visibility.PRIVATE),
    ]


def _of_unconfirmed(n: int, visibility: Visibility) -> Check:
    return Check(
        f"{n:,} {visibility} score{' is' if n == 1 else 's are'} unconfirmed" if n else "No score is unconfirmed",
        ok=not n,
        detail="without a rank until you confirm or disqualify: “unconfirmed” in the list of submissions" if n else "",
    )


def _still_in_progress(n: int) -> str:
    return f"{n:,} submission{' is' if n == 1 else 's are'} still in progress" if n else ""
