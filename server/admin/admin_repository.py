"""Queries for organisers: announcements, what a change would affect, exports."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Executable, Select, func, or_, select
from sqlalchemy.orm import Session

from server.models.account import Account, AuditEvent
from server.models.competition import Competition, Membership, Split, Team
from server.models.evaluation import Announcement, Evaluation, MetricResult, PrivateScore, PublicScore
from server.models.participation import TermsAcceptance
from server.models.submission import ENDED, Submission

CHUNK = 500
_TASK = func.coalesce(Competition.task_name, "").label("task")


def _of_it_or_a_task(competition_id: str) -> ColumnElement[bool]:
    return or_(Competition.id == competition_id, Competition.parent_id == competition_id)


def submissions(session: Session, competition_id: str) -> Iterator[dict[str, Any]]:
    """Yield every submission, the earliest first; where there are tasks, with its part in each."""
    columns = (
        "filename", "content_sha256", "size_bytes", "message", "received_at", "phase", "is_official", "stage",
        "fault", "error_class", "refunded", "selected", "disqualified_at", "excluded_at", "finished_at",
    )  # fmt: skip
    statement = (
        select(
            Submission.id,
            _TASK,
            Submission.parent_id,
            Team.name.label("team"),
            Account.name.label("submitted_by"),
            *(getattr(Submission, name) for name in columns),
        )
        .join(Team, Team.id == Submission.team_id)
        .join(Competition, Competition.id == Submission.competition_id)
        .join(Account, Account.id == Submission.account_id)
        .where(_of_it_or_a_task(competition_id))
        .order_by(Submission.received_at, Submission.id)
    )
    return _rows(session, statement)


def evaluations(session: Session, competition_id: str) -> Iterator[dict[str, Any]]:
    """Yield every evaluation with its score, old ones and those of re-judgings too."""
    public, private = PublicScore, PrivateScore
    columns = (
        "scorer_version", "rejudging_id", "is_current", "state", "fault", "error_class", "n_runs", "created_at",
        "finished_at",
    )  # fmt: skip
    scored = (
        "final_score", "forgetting_quality", "retain_ratio", "test_ratio", "interval_low", "interval_high",
        "is_unconfirmed",
    )  # fmt: skip
    statement = (
        select(
            Evaluation.id,
            Evaluation.submission_id,
            _TASK,
            Team.name.label("team"),
            Split.visibility.label("split"),
            *(getattr(Evaluation, name) for name in columns),
            *(getattr(public, name).label(f"public_{name}") for name in scored),
            *(getattr(private, name).label(f"private_{name}") for name in scored),
        )
        .join(Submission, Submission.id == Evaluation.submission_id)
        .join(Team, Team.id == Submission.team_id)
        .join(Competition, Competition.id == Submission.competition_id)
        .join(Split, Split.id == Evaluation.split_id)
        .outerjoin(public, public.evaluation_id == Evaluation.id)
        .outerjoin(private, private.evaluation_id == Evaluation.id)
        .where(_of_it_or_a_task(competition_id))
        .order_by(Evaluation.created_at, Evaluation.id)
    )
    return _rows(session, statement)


def metrics(session: Session, competition_id: str) -> Iterator[dict[str, Any]]:
    """Yield every metric of every evaluation, beside the same metric of exact retraining and of the original model."""
    columns = (
        "metric_id", "parameters", "metric_version", "value", "interval_low", "interval_high", "standard_deviation",
        "oracle", "original", "not_computed", "notes", "requested_at", "computed_at",
    )  # fmt: skip
    statement = (
        select(
            MetricResult.evaluation_id,
            Evaluation.submission_id,
            _TASK,
            Team.name.label("team"),
            Split.visibility.label("split"),
            Evaluation.is_current,
            *(getattr(MetricResult, name) for name in columns),
        )
        .join(Evaluation, Evaluation.id == MetricResult.evaluation_id)
        .join(Submission, Submission.id == Evaluation.submission_id)
        .join(Team, Team.id == Submission.team_id)
        .join(Competition, Competition.id == Submission.competition_id)
        .join(Split, Split.id == Evaluation.split_id)
        .where(_of_it_or_a_task(competition_id))
        .order_by(MetricResult.id)
    )
    return _rows(session, statement)


def acceptances(session: Session, competition_id: str) -> Iterator[dict[str, Any]]:
    """Yield who accepted which version of the terms, and when, the earliest first."""
    statement = (
        select(Account.name.label("account"), TermsAcceptance.version, TermsAcceptance.accepted_at)
        .join(Account, Account.id == TermsAcceptance.account_id)
        .where(TermsAcceptance.competition_id == competition_id)
        .order_by(TermsAcceptance.accepted_at, Account.name)
    )
    return _rows(session, statement)


def audit_events(session: Session, competition_id: str) -> Iterator[dict[str, Any]]:
    """Yield every event of the audit log in the order in which they happened."""
    columns = "id", "at", "actor", "action", "subject", "reason", "data"
    statement = (
        select(*(getattr(AuditEvent, name) for name in columns))
        .where(AuditEvent.competition_id == competition_id)
        .order_by(AuditEvent.id)
    )
    return _rows(session, statement)


def _rows(session: Session, statement: Executable) -> Iterator[dict[str, Any]]:
    for row in session.execute(statement.execution_options(yield_per=CHUNK)).mappings():
        yield dict(row)


def announcements(session: Session, competition: Competition) -> Sequence[tuple[Announcement, str]]:
    """Return the announcements, the newest first, each with its author's name."""
    statement = (
        select(Announcement, Account.name)
        .join(Account, Account.id == Announcement.author_id)
        .where(Announcement.competition_id == competition.id)
        .order_by(Announcement.created_at.desc(), Announcement.id)
    )
    return [(row, author) for row, author in session.execute(statement)]


def used_per_team(
    session: Session, competition_id: str, *, since: datetime | None = None
) -> dict[tuple[str, str], int]:
    """Return how many submissions count against each team's quota of each phase, by the team's id and the phase."""
    counted = select(Submission.team_id, Submission.phase, func.count())
    counted = counted.where(Submission.competition_id == competition_id, Submission.refunded.is_(False))
    if since is not None:
        counted = counted.where(Submission.received_at >= since)
    rows = session.execute(counted.group_by(Submission.team_id, Submission.phase))
    return {(team_id, phase): n for team_id, phase, n in rows}


def people_per_team(session: Session, competition_id: str) -> dict[str, int]:
    people = select(Team.name, func.count()).join(Membership, Membership.team_id == Team.id)
    return _by_team(session, people.where(Team.competition_id == competition_id))


def chosen_per_team(session: Session, competition_id: str) -> dict[str, int]:
    chosen = select(Team.name, func.count()).join(Submission, Submission.team_id == Team.id)
    return _by_team(session, chosen.where(Submission.competition_id == competition_id, Submission.selected.is_(True)))


def _by_team(session: Session, counted: Select[str, int]) -> dict[str, int]:
    return dict(session.execute(counted.group_by(Team.id, Team.name).order_by(Team.name)).all())


def unfinished(session: Session, competition_id: str) -> int:
    waiting = Submission.competition_id == competition_id, Submission.stage.not_in(ENDED)
    return session.scalar(select(func.count()).select_from(Submission).where(*waiting)) or 0


def phases_with_submissions(session: Session, competition_id: str) -> frozenset[str]:
    """Return the names of the phases to which something was submitted."""
    names = select(Submission.phase).where(Submission.competition_id == competition_id).distinct()
    return frozenset(session.scalars(names))
