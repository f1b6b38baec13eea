"""Scores put straight into the database, and what workers and organisers then do to them."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from lethe.client.bundle import unpack
from lethe.competition.visibility import Visibility
from server import audit
from server.audit import EventFilter
from server.competitions import competitions
from server.db import new_id, now
from server.evaluations import evaluations
from server.evaluations.evaluations import SCORER_VERSION
from server.metric_results import metric_results
from server.metric_results.metric_results import ComputedMetric, hash_parameters
from server.models.account import Account
from server.models.competition import Competition, Membership, Split, Team
from server.models.evaluation import Evaluation, EvaluationState, MetricResult, PrivateScore, PublicScore
from server.models.submission import Fault, Submission
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from tests.support.instance import GOOD_CODE, Instance

BASE = "/api/v1/competitions/digits"


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


def add_scored(server: Instance, competition: Competition, name: str = "ada", score: float = 0.1) -> Submission:
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        submission = scored(session, add_team(session, competition, name), public, score)
        submission.content_sha256 = server.storage.write("submissions/co/code", b"def unlearning(n, a, b, c): ...\n")
        server.storage.write(
            f"submissions/{submission.content_sha256[:2]}/{submission.content_sha256}",
            b"def unlearning(n, a, b, c): ...\n",
        )
        return submission


def actions(server: Instance, competition: Competition) -> list[tuple[str, str]]:
    with server.database.read() as session:
        events = audit.events(session, EventFilter(competition_id=competition.id))
        return [(event.action, event.reason) for event in events]


REPORT = {"metrics": [{"id": "accuracy_gap"}, {"id": "klom"}], "visible_to_participants": "public"}


def scored_with_report(server: Instance, **report: object) -> str:
    """Make a competition with a report and a scored submission of ada's. Return its id."""
    server.competition()
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": REPORT | report}
    sent = server.submit(server.participant("ada"), GOOD_CODE).json()["id"]
    server.score(sent, 0.5)
    return str(sent)


def compute(server: Instance, submission: str, value: float = 0.123456) -> None:
    """Do what the worker's task would."""
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
        computed = ComputedMetric(metric_version=1, value=value, oracle=0.0123456, original=0.3, table={"n": 1})
        metric_results.record(
            session, {each.row_id: computed for each in metric_results.waiting(session, evaluation.id)}
        )


def finish_rejudged(
    server: Instance,
    submission: str,
    score: float | None,
    *,
    fault: Fault = Fault.PARTICIPANT,
    details: dict[str, Any] | None = None,
) -> None:
    """End the new evaluation of one submission, with a score or a failure."""
    with server.database.write() as session:
        new = Evaluation.submission_id == submission, Evaluation.is_current.is_(False)
        evaluation = session.scalars(select(Evaluation).where(*new, Evaluation.state == "queued")).one()
        if score is None:
            evaluations.fail(session, evaluation, fault=fault, error_class="exception", error={})
            return
        evaluation.state = EvaluationState.SCORING.value
        session.flush()
        parts = {"forgetting_quality": score, "retain_ratio": 1.0, "test_ratio": 1.0}
        found = ScoreRecord(final_score=score, details=details or {}, **parts)
        assert scores.record(session, evaluation.id, found)


def board(server: Instance) -> list[tuple[str, float]]:
    return [(row["team"], row["score"]) for row in server.client.get(f"{BASE}/leaderboard").json()["rows"]]


def fetch_bundle(server: Instance, slug: str, organiser: dict[str, str], folder: Path, **params: bool) -> Path:
    """Return the folder with the unpacked bundle."""
    answer = server.client.get(f"/api/v1/competitions/{slug}/bundle", headers=organiser, params=params)
    assert answer.status_code == 200, answer.text
    path = folder / "bundle.zip"
    path.write_bytes(answer.content)
    unpack(path, folder / slug)
    return folder / slug


def texts(folder: Path) -> str:
    """Return everything that stands in a bundle's files."""
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file())
