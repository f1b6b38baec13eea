"""A competition with teams and submissions, in a migrated database of each kind."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from server.db import Database, now
from server.evaluations import evaluations
from server.models.account import Account
from server.models.competition import Competition, Split, SplitState, Team
from server.models.submission import Submission

N = 10
SHARD_RUNS = 4


def competition_file(**changes: object) -> CompetitionFile:
    moment = datetime.now(UTC)
    data: dict[str, object] = {
        "slug": "tiny",
        "title": "Tiny",
        "opens_at": moment - timedelta(days=1),
        "closes_at": moment + timedelta(days=1),
        "n_models": N,
        "shard_runs": SHARD_RUNS,
        "dataset": {"name": "digits"},
        "network": {"name": "mlp"},
        "training": {"epochs": 1, "learning_rate": 0.1},
    }
    return CompetitionFile.model_validate(data | changes)


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    database = Database(migrated_url)
    yield database
    database.dispose()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages that would have gone to the broker, in order."""
    messages: list[str] = []
    monkeypatch.setattr("server.queue.send", lambda task, *args, to=None: not messages.append(task))
    return messages


@pytest.fixture
def competition(database: Database) -> Competition:
    return _competition(database)


def _competition(database: Database) -> Competition:
    file = competition_file()
    with database.write() as session:
        owner = Account(name="owner", name_key="owner", password_hash="x", role="organiser")
        session.add(owner)
        session.flush()
        competition = Competition(
            slug=file.slug,
            title=file.title,
            state="open",
            opens_at=file.opens_at,
            closes_at=file.closes_at,
            config=file.model_dump(mode="json"),
            source="",
            created_by=owner.id,
        )
        session.add(competition)
        session.flush()
        session.add_all(
            Split(
                competition_id=competition.id,
                visibility=visibility.value,
                state=SplitState.READY.value,
                manifest_sha256="0" * 64,
                retraining_time_s=1.0,
            )
            for visibility in Visibility
        )
    return competition


Submit = Callable[[str], Submission]


@pytest.fixture
def submit(database: Database, competition: Competition, sent: list[str]) -> Submit:
    """Add a submission of the named team and start its evaluation on the public split, without a smoke run."""
    return lambda team: add_submission(database, competition, team)


def add_submission(
    database: Database, competition: Competition, team_name: str, *, smoke: bool = False, visibility: str = "public"
) -> Submission:
    with database.write() as session:
        team = session.query(Team).filter_by(name=team_name).one_or_none()
        if team is None:
            account = Account(name=team_name, name_key=team_name, password_hash="x")
            session.add(account)
            session.flush()
            team = Team(
                competition_id=competition.id, name=team_name, name_key=team_name.casefold(), leader_id=account.id
            )
            session.add(team)
            session.flush()
        submission = Submission(
            competition_id=competition.id,
            team_id=team.id,
            account_id=team.leader_id,
            filename="a.py",
            kind="py",
            content_sha256="0" * 64,
            size_bytes=1,
            entry_point={"file": "submission.py", "function": "unlearning", "style": "dict", "keywords": []},
            received_at=now(),
        )
        session.add(submission)
        session.flush()
        split = session.query(Split).filter_by(competition_id=competition.id, visibility=visibility).one()
        evaluations.start(session, submission, split, smoke=smoke)
    return submission
