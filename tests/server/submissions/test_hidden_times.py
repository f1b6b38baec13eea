"""Runs on hidden data tell little by the time they take: over the API, in pages and streams, in receipts."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from server.db import now
from server.evaluations.progress import STEPS
from server.models.account import Account, Role
from server.models.evaluation import Evaluation, Shard, ShardAttempt
from server.models.submission import Submission
from tests.support.instance import Instance
from tests.support.web import Visitor

N = 512
SetDone = Callable[[int], None]


@pytest.fixture
def running(server: Instance) -> tuple[str, SetDone]:
    """A submission of N runs in one shard, whose attempt began long ago, and what says how many are done."""
    server.competition(organiser=server.account("olga", Role.ORGANISER))
    submission = str(server.submit(server.participant("ada")).json()["id"])
    with server.database.write() as session:
        row, evaluation = session.get_one(Submission, submission), session.query(Evaluation).one()
        row.stage, evaluation.n_runs = "running", N
        session.query(Shard).delete()
        shard = Shard(
            evaluation_id=evaluation.id,
            team_id=row.team_id,
            split_id=evaluation.split_id,
            competition_id=row.competition_id,
            first_run=0,
            n_runs=N,
            attempt=1,
        )
        session.add(shard)
        session.flush()
        began = now() - timedelta(minutes=9, seconds=7, microseconds=5)
        session.add(ShardAttempt(shard_id=shard.id, worker="w", attempt=1, started_at=began))

    def set_done(done: int) -> None:
        with server.database.write() as session:
            session.execute(update(Shard).values(runs_done=done))

    return submission, set_done


def auth_headers(server: Instance, name: str) -> dict[str, str]:
    with server.database.read() as session:
        account = session.query(Account).filter_by(name=name).one()
    return server.headers(account)


def fetch_progress(server: Instance, headers: dict[str, str], submission: str) -> Any:
    return server.client.get(f"/api/v1/submissions/{submission}", headers=headers).json()["progress"]


def test_team_sees_few_steps_and_its_organisers_every_run(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, set_done = running
    ada, olga = auth_headers(server, "ada"), auth_headers(server, "olga")
    seen, exact = set(), []
    for done in (*range(0, N, 7), N):
        set_done(done)
        shown = fetch_progress(server, ada, submission)
        seen.add(shown["runs_done"])
        assert 0 <= done - shown["runs_done"] < N / STEPS
        assert (shown["remaining_s"] is None) == (shown["runs_done"] == 0)
        (everything,) = server.client.get("/api/v1/competitions/digits/all-submissions", headers=olga).json()
        exact.append(everything["progress"]["runs_done"])
    assert len(seen) == STEPS + 1
    assert exact == [*range(0, N, 7), N]


def test_pages_and_streams_show_the_same_steps(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, set_done = running
    set_done(137)
    ada = Visitor(server)
    ada.log_in("ada")
    for path in (f"/submissions/{submission}", f"/submissions/{submission}/progress"):
        shown = ada.get(path).text
        assert "128 of 512 runs done" in shown, path
        assert "137 of" not in shown
    assert "128 of 512" in ada.get("/competitions/digits/submissions").text
    with server.database.write() as session:
        session.get_one(Submission, submission).stage = "cancelled"  # a stream ends with what has ended
    told = ada.get(f"/submissions/{submission}/events").text
    assert "128 of 512 runs were done" in told
    assert "137 of" not in told


def test_times_of_hidden_runs_are_told_to_the_minute(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, _ = running
    ada, olga = auth_headers(server, "ada"), auth_headers(server, "olga")
    (attempt,) = fetch_progress(server, ada, submission)["attempts"]
    assert attempt["started_at"].endswith(":00Z")
    (everything,) = server.client.get("/api/v1/competitions/digits/all-submissions", headers=olga).json()
    assert not everything["progress"]["attempts"][0]["started_at"].endswith(":00Z")


def test_receipt_tells_times_to_the_minute(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, _ = running
    with server.database.write() as session:
        ended = now() - timedelta(minutes=3, microseconds=5)
        session.execute(update(ShardAttempt).values(ended_at=ended, outcome="done"))
        session.execute(update(Shard).values(wall_time_s=61.25))
    server.score(submission, 0.1)
    body = server.client.get(f"/api/v1/submissions/{submission}/receipt", headers=auth_headers(server, "ada")).json()
    (attempt,) = body["evaluation"]["attempts"]
    assert attempt["started_at"].endswith(":00+00:00")
    assert attempt["ended_at"].endswith(":00+00:00")
    assert body["evaluation"]["wall_time_s"] == 120.0
