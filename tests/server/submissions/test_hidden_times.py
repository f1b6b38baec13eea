"""Runs on hidden data tell little by the time they take: over the API, in pages and streams, in receipts."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from server.db import now
from server.disclosure.shown_progress import STEPS
from server.models.account import Account, Role
from server.models.evaluation import Evaluation, Shard, ShardAttempt
from server.models.submission import Submission
from tests.support.instance import Instance
from tests.support.web import Visitor, plain_text

N = 512
SetDone = Callable[[int], None]


SHARDS = 16


@pytest.fixture
def running(server: Instance) -> tuple[str, SetDone]:
    """A submission of N runs that began long ago, and what says how many of its shards were done two minutes ago."""
    server.competition(organiser=server.account("olga", Role.ORGANISER))
    submission = str(server.submit(server.participant("ada")).json()["id"])
    began = now() - timedelta(minutes=9, seconds=7, microseconds=5)
    with server.database.write() as session:
        row, evaluation = session.get_one(Submission, submission), session.query(Evaluation).one()
        row.stage, evaluation.n_runs = "running", N
        session.query(Shard).delete()
        shards = [
            Shard(
                evaluation_id=evaluation.id,
                team_id=row.team_id,
                split_id=evaluation.split_id,
                competition_id=row.competition_id,
                first_run=place * N // SHARDS,
                n_runs=N // SHARDS,
                attempt=1,
            )
            for place in range(SHARDS)
        ]
        session.add_all(shards)
        session.flush()
        session.add_all(ShardAttempt(shard_id=each.id, worker="w", attempt=1, started_at=began) for each in shards)

    def set_done(done: int) -> None:
        ended = now() - timedelta(minutes=2, microseconds=5)
        with server.database.write() as session:
            for shard, attempt in session.query(Shard, ShardAttempt).join(ShardAttempt).order_by(Shard.id):
                shard.runs_done = max(0, min(N // SHARDS, done - shard.first_run))
                if shard.runs_done == shard.n_runs:
                    attempt.outcome, attempt.ended_at = "done", ended

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
    for done in (*range(0, N, 37), N):
        set_done(done)
        shown = fetch_progress(server, ada, submission)
        seen.add(shown["runs_done"])
        assert 0 <= done - shown["runs_done"] < N / STEPS
        assert (shown["remaining_s"] is None) == (shown["runs_done"] in (0, N))
        (everything,) = server.client.get("/api/v1/competitions/digits/all-submissions", headers=olga).json()
        exact.append(everything["progress"]["runs_done"])
    assert seen == {0, 128, 256, 384, 512}
    assert exact == [*range(0, N, 37), N]


def test_pages_and_streams_show_the_same_steps(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, set_done = running
    set_done(165)
    ada = Visitor(server)
    ada.log_in("ada")
    for path in (f"/submissions/{submission}", f"/submissions/{submission}/progress"):
        shown = ada.get(path).text
        assert "128 of 512 runs done" in shown, path
        assert not {"160", "165"} & set(plain_text(shown).split()), path
    assert "128 of 512" in ada.get("/competitions/digits/submissions").text
    with server.database.write() as session:
        session.get_one(Submission, submission).stage = "cancelled"  # a stream ends with what has ended
    told = ada.get(f"/submissions/{submission}/events").text
    assert "128 of 512 runs were done" in told
    assert "165 of" not in told


def test_times_of_hidden_runs_are_told_to_the_minute(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, _ = running
    ada, olga = auth_headers(server, "ada"), auth_headers(server, "olga")
    (attempt,) = fetch_progress(server, ada, submission)["attempts"]
    assert attempt["started_at"].endswith(":00Z")
    (everything,) = server.client.get("/api/v1/competitions/digits/all-submissions", headers=olga).json()
    assert not everything["progress"]["attempts"][0]["started_at"].endswith(":00Z")


def test_receipt_tells_times_only_where_it_is_exact(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, set_done = running
    set_done(N)
    with server.database.write() as session:
        session.execute(update(Shard).values(wall_time_s=61.25 / SHARDS))
    server.score(submission, 0.1)
    path = f"/api/v1/submissions/{submission}/receipt"
    team, organiser = (server.client.get(path, headers=auth_headers(server, name)).json() for name in ("ada", "olga"))
    assert (team["evaluation"]["attempts"], team["evaluation"]["wall_time_s"]) == ([], None)
    attempt = organiser["evaluation"]["attempts"][0]
    assert attempt["started_at"].endswith(":00+00:00")
    assert attempt["ended_at"].endswith(":00+00:00")
    assert organiser["evaluation"]["wall_time_s"] == 120.0
