"""A complete instance in this process: migrated database, storage, queue and the application over it."""

import io
import math
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from fastapi.testclient import TestClient
from sqlalchemy import select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.runtime.error_classes import ErrorClass
from server import cost_cache, queue
from server.accounts import accounts, passwords, rate_limit, tokens
from server.competitions import competitions, split_leases
from server.competitions.split_leases import PreparedSplit
from server.config import get_settings
from server.db import Database, now
from server.deps import get_database
from server.evaluations import evaluation_repository, evaluations
from server.finals import finals
from server.leaderboard import boards
from server.main import create_app
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionState, Split, SplitState
from server.models.evaluation import Evaluation, EvaluationState, ShardState
from server.models.submission import Fault
from server.parsing import client as parsing
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from server.storage import Storage, get_storage
from server.submissions import upload_check
from tests.support.one_turn_client import OneTurnClient

PASSWORD = "correct horse battery"
GOOD_CODE = b"def unlearning(net, retain_loader, forget_loader, val_loader):\n    return net\n"
QUICK_HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)  # the usual one is slow on purpose
CACHES = (get_settings, get_database, get_storage, queue.client, upload_check.throttle, rate_limit.registrations)


class Instance:
    """What tests ask of a running server."""

    def __init__(self, client: TestClient, database: Database, storage: Storage) -> None:
        self.client = client
        self.database = database
        self.storage = storage

    def account(self, name: str, role: Role = Role.PARTICIPANT) -> Account:
        with self.database.write() as session:
            return accounts.register(session, name=name, password=PASSWORD, role=role)

    def confirmed_account(self, name: str, role: Role = Role.PARTICIPANT, *, address: str = "") -> Account:
        """Make an account with a confirmed address, NAME@example.org if no other is given."""
        account = self.account(name, role)
        with self.database.write() as session:
            row = session.get_one(Account, account.id)
            row.email, row.email_confirmed_at = address or f"{name}@example.org", now()
        return account

    def headers(self, account: Account) -> dict[str, str]:
        with self.database.write() as session:
            return {"Authorization": f"Bearer {tokens.issue(session, account, label='test').token}"}

    def participant(self, name: str = "ada") -> dict[str, str]:
        """Make a participant. Return the headers of their requests."""
        return self.headers(self.account(name))

    def organiser(self, name: str = "olga") -> dict[str, str]:
        return self.headers(self.account(name, Role.ORGANISER))

    def competition(
        self,
        slug: str = "digits",
        *,
        organiser: Account | None = None,
        state: str = CompetitionState.OPEN,
        **values: Any,
    ) -> Competition:
        """Make a competition in any state, with splits that are ready. `values` go into its file.

        One that is over was taken while it was not: no file is taken after its end.
        """
        closes_at = values.get("closes_at")
        taken = values if closes_at is None else {**values, "closes_at": max(closes_at, now() + timedelta(days=1))}
        with self.database.write() as session:
            owner = organiser or accounts.register(session, name=f"of-{slug}", password=PASSWORD, role=Role.ORGANISER)
            competition = competitions.create(session, competition_toml(slug, **taken), organiser=owner)
            if closes_at is not None:
                competition.closes_at = closes_at
                competition.config = {**competition.config, "closes_at": closes_at.isoformat()}
            for split in competitions.splits(session, competition):
                split.state = SplitState.READY.value
                split.manifest_sha256, split.n_forget, split.retraining_time_s = "0" * 64, 10, 100.0
            competition.state = str(state)
            return competition

    def organised(self, slug: str = "digits", **values: Any) -> dict[str, str]:
        """Make a competition that olga runs. Return the headers of her requests."""
        olga = self.account("olga", Role.ORGANISER)
        self.competition(slug, organiser=olga, **values)
        return self.headers(olga)

    def close(self, organiser: dict[str, str]) -> None:
        """Close the competition by hand; its finals are re-scored."""
        answer = self.client.post("/api/v1/competitions/digits/close", headers=organiser, json={"reason": "over"})
        assert answer.status_code == 200, answer.text
        self.tick()

    def act(self, headers: dict[str, str], submission: str, verb: str, **values: str) -> Any:
        """Let an organiser act on a submission, with a good reason."""
        body = {"act": verb, "reason": "a good reason", **values}
        path = f"/api/v1/competitions/digits/submissions/{submission}/acts"
        return self.client.post(path, headers=headers, json=body)

    def shown(self, headers: dict[str, str], submission: str) -> Any:
        """Return a submission as its reader sees it."""
        return self.client.get(f"/api/v1/submissions/{submission}", headers=headers).json()

    def board(self, headers: dict[str, str] | None = None, **params: str) -> list[tuple[str, float]]:
        """Return the teams of a board with their scores."""
        answer = self.client.get("/api/v1/competitions/digits/leaderboard", headers=headers or {}, params=params)
        assert answer.status_code == 200, answer.text
        return [(row["team"], row["score"]) for row in answer.json()["rows"]]

    def score(
        self,
        submission_id: str,
        value: float,
        *,
        visibility: Visibility = Visibility.PUBLIC,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Do what workers would: every run done, and this score found."""
        with self.database.write() as session:
            evaluation = self._current(session, submission_id, visibility)
            evaluation.state = EvaluationState.SCORING.value
            for shard in evaluation_repository.get_shards(session, [evaluation.id]):
                shard.state, shard.runs_done = ShardState.DONE.value, shard.n_runs
            session.flush()
            parts = {"forgetting_quality": value, "retain_ratio": 1.0, "test_ratio": 1.0}
            record = ScoreRecord(final_score=value, details=details or {"epsilon": 3.25}, **parts)
            assert scores.record(session, evaluation.id, record)

    def fail(self, submission_id: str, fault: Fault, *, visibility: Visibility = Visibility.PUBLIC) -> None:
        """Do what a worker would that saw the submission fail."""
        with self.database.write() as session:
            evaluation = self._current(session, submission_id, visibility)
            error: dict[str, object] = {"message": "it broke"}
            evaluations.fail(session, evaluation, fault=fault, error_class=ErrorClass.EXCEPTION, error=error)

    def state(self) -> str:
        """Return the state of the only competition."""
        with self.database.read() as session:
            return session.scalars(select(Competition.state)).one()

    def prepare_splits(self) -> None:
        """Do what a worker would: take each split that waits, and report it prepared."""
        made = PreparedSplit(manifest_sha256="0" * 64, n_forget=3, retraining_time_s=1.0, oracle={"final_score": 0.5})
        with self.database.read() as session:
            waiting = session.scalars(select(Split.id).where(Split.state == SplitState.PENDING.value)).all()
        for split_id in waiting:
            with self.database.write() as session:
                work = split_leases.claim(session, split_id, lease_s=60)
                assert work is None or split_leases.finish(session, work, made)

    def tick(self) -> int:
        with self.database.write() as session:
            return finals.tick(session, now())

    @staticmethod
    def _current(session: Session, submission_id: str, visibility: Visibility) -> Evaluation:
        current = Evaluation.submission_id == submission_id, Evaluation.is_current.is_(True)
        return session.scalars(
            select(Evaluation)
            .join(Split, Split.id == Evaluation.split_id)
            .where(*current, Split.visibility == visibility.value)
        ).one()

    def submit(
        self,
        headers: dict[str, str],
        code: bytes = GOOD_CODE,
        *,
        filename: str = "submission.py",
        slug: str = "digits",
        message: str = "",
    ) -> Any:
        return self.client.post(
            f"/api/v1/competitions/{slug}/submissions",
            headers=headers,
            files={"file": (filename, code)},
            data={"message": message},
        )


def competition_toml(
    slug: str = "digits",
    *,
    opens_at: datetime | None = None,
    closes_at: datetime | None = None,
    limits: dict[str, object] | None = None,
    extra: str = "",
) -> str:
    """Return a small competition file, open for a day around now if nothing else is said."""
    opens_at = opens_at or now() - timedelta(days=1)
    closes_at = closes_at or now() + timedelta(days=1)
    limit_lines = "\n".join(f"{name} = {value}" for name, value in (limits or {}).items())
    return f"""
slug = "{slug}"
title = "Forgetting {slug}"
opens_at = {opens_at.isoformat()}
closes_at = {closes_at.isoformat()}
n_models = 4
shard_runs = 2
{extra}
[dataset]
name = "digits"
[network]
name = "mlp"
[training]
epochs = 1
learning_rate = 0.1
[limits]
{limit_lines}
"""


def make_zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@contextmanager
def repeated(act: Callable[[], object], *, every_s: float = 0.0005) -> Iterator[None]:
    """Do the act in a thread, again and again. An exception of it is raised at the end."""
    stopped, errors = threading.Event(), []

    def repeat() -> None:
        try:
            while not stopped.wait(every_s):
                act()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
    assert not errors


@contextmanager
def instance(monkeypatch: pytest.MonkeyPatch, *, database_url: str, redis_url: str, folder: Path) -> Iterator[Instance]:
    """Yield an instance on a migrated database. Nothing of it outlives the test."""
    monkeypatch.setenv("LETHE_DATABASE_URL", database_url)
    monkeypatch.setenv("LETHE_REDIS_URL", redis_url)
    monkeypatch.setenv("LETHE_STORAGE_URL", (folder / "storage").as_uri())
    monkeypatch.setenv("LETHE_HOME", str(folder / "home"))
    monkeypatch.setenv("LETHE_CLOSE_GRACE_S", "0")  # tests of the grace set it themselves
    monkeypatch.setattr(passwords, "_hasher", QUICK_HASHER)
    # What was computed before a change is not shown after it, however long a busy machine took to compute it.
    monkeypatch.setattr(cost_cache, "KEPT_PER_SECOND_OF_COST", 0.0)
    monkeypatch.setattr(cost_cache, "COSTLY_S", math.inf)
    # A text has its processor time; how long a busy machine lets its reader wait for it is not what is tested.
    limits = vars(parsing)["get_limits"]  # a test's own, where it has set some
    monkeypatch.setattr(parsing, "get_limits", lambda task: replace(limits(task), wall_s=300.0))
    for cache in CACHES:
        cache.cache_clear()
    boards._kept.clear()  # of another test's instance
    for limiter in vars(rate_limit).values():
        if isinstance(limiter, rate_limit.Throttle):
            limiter.clear()
    database = get_database()
    try:
        with OneTurnClient(create_app(), base_url="http://localhost") as client:
            yield Instance(client, database, get_storage())
    finally:
        queue.client().close()
        database.dispose()
        for cache in CACHES:
            cache.cache_clear()
