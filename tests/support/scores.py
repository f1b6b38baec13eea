"""Scores put straight into the database, for tests of what is made of them."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db import new_id, now
from server.evaluations.evaluations import SCORER_VERSION
from server.metric_results.metric_results import hash_parameters
from server.models.account import Account
from server.models.competition import Competition, Membership, Split, Team
from server.models.evaluation import Evaluation, MetricResult, PrivateScore, PublicScore
from server.models.submission import Submission


def add_team(session: Session, competition: Competition, name: str, *, is_baseline: bool = False) -> Team:
    """Make an account and a team of the same name."""
    account = Account(name=name, name_key=name.casefold(), password_hash="-")
    session.add(account)
    session.flush()
    team = Team(
        competition_id=competition.id,
        name=name,
        name_key=name.casefold(),
        leader_id=account.id,
        is_baseline=is_baseline,
    )
    session.add(team)
    session.flush()
    session.add(Membership(team_id=team.id, account_id=account.id, competition_id=competition.id))
    session.flush()
    return team


def add_submission(
    session: Session, team: Team, *, received_at: datetime | None = None, stage: str = "scored", account_id: str = ""
) -> Submission:
    submission = Submission(
        id=new_id(),
        competition_id=team.competition_id,
        team_id=team.id,
        account_id=account_id or team.leader_id,
        filename="submission.py",
        kind="py",
        content_sha256="0" * 64,
        size_bytes=1,
        entry_point={},
        received_at=received_at or now(),
        stage=stage,
        error_class="exception" if stage == "failed" else None,
    )
    session.add(submission)
    session.flush()
    return submission


def add_score(
    session: Session,
    submission: Submission,
    split: Split,
    score: float,
    *,
    interval: tuple[float, float] | None = None,
    is_current: bool = True,
    scorer_version: str = SCORER_VERSION,
    is_unconfirmed: bool = False,
    details: dict[str, Any] | None = None,
) -> None:
    evaluation = Evaluation(
        id=new_id(),
        submission_id=submission.id,
        split_id=split.id,
        scorer_version=scorer_version,
        state="scored",
        n_runs=4,
        is_current=is_current,
    )
    session.add(evaluation)
    session.flush()
    table = PublicScore if split.visibility == "public" else PrivateScore
    low, high = interval or (None, None)
    session.add(
        table(
            evaluation_id=evaluation.id,
            submission_id=submission.id,
            final_score=score,
            forgetting_quality=score,
            retain_ratio=1.0,
            test_ratio=1.0,
            interval_low=low,
            interval_high=high,
            scorer_version=scorer_version,
            details=details or {},
            is_unconfirmed=is_unconfirmed,
            tied_group=0 if interval else None,
        )
    )
    session.flush()


def scored(
    session: Session, team: Team, split: Split, score: float, *, hours_ago: float = 1.0, **options: object
) -> Submission:
    """Add a submission with a score."""
    submission = add_submission(session, team, received_at=now() - timedelta(hours=hours_ago))
    submission.selected = split.visibility == "private"
    add_score(session, submission, split, score, **options)  # type: ignore[arg-type]
    return submission


def add_metric(session: Session, submission: Submission, metric_id: str, value: float | None, **fields: Any) -> None:
    own = select(Evaluation).where(Evaluation.submission_id == submission.id)
    evaluation = session.scalars(own.order_by(Evaluation.created_at).limit(1)).one()
    parameters = {"bins": 10} if metric_id == "klom" else {}
    written = {
        "parameters": parameters,
        "parameters_sha256": hash_parameters(parameters),
        "metric_version": 1,
        "computed_at": now(),
        "oracle": 0.01234,
        "original": 3.00049,
    }
    row = MetricResult(evaluation_id=evaluation.id, metric_id=metric_id, value=value, **(written | fields))
    session.add(row)
    session.flush()
