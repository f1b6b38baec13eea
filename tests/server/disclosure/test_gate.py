"""What the gate counts is never less than what it shows, and hidden runs tell little by the time they take."""

from collections.abc import Callable
from datetime import timedelta
from math import log2

import numpy as np
import pytest
from sqlalchemy import update

from server.db import now
from server.disclosure import gate
from server.disclosure.shown_progress import STEPS
from server.models.account import Account, Role
from server.models.competition import Competition
from server.models.evaluation import Disclosure, Evaluation, PrivateScore, PublicScore, Shard, ShardAttempt
from server.models.submission import Submission
from tests.support.instance import Instance
from tests.support.web import Visitor, plain_text

LADDER = '[board]\nmode = "ladder"\nstep = 0.2\n'
OPEN = "[metric]\nshow_intervals = true\nshow_breakdown = true\nbootstrap_resamples = 20\n"


def different(show: object, values: np.ndarray) -> float:
    return log2(len({show(float(value)) for value in values}))  # type: ignore[operator]


def test_score_tells_no_more_than_is_said() -> None:
    values = np.linspace(0.0, 1.0, 300_001)
    assert different(gate.show_score, values) <= gate.BITS_OF_A_SCORE
    assert gate.show_score(0.123456789) == 0.12346


def test_time_of_a_run_tells_no_more_than_is_said() -> None:
    values = np.exp(np.linspace(-9.0, 12.0, 10_000))
    by_clock = [(gate.show_run_time({"run_wall_time_s": float(value)}) or ())[0] for value in values]
    assert log2(len(set(by_clock))) == pytest.approx(gate.BITS_OF_A_RUN_TIME)
    of_the_limit = [gate.show_run_time({"run_time": {"s": float(value), "limit_s": 0.2}}) for value in values]
    assert log2(len(set(of_the_limit))) <= gate.BITS_OF_A_RUN_TIME
    shown = [gate.show_run_time({"run_wall_time_s": value}) for value in (0.31415, 0.5, 59.0, 1e9)]
    assert shown == [(0.5, None), (0.5, None), (100.0, None), (1000.0, None)]
    assert gate.show_run_time({"run_time": {"s": 0.11, "limit_s": 0.2}, "run_wall_time_s": 7.0}) == (0.12, 0.2)
    assert gate.show_run_time({}) is None


@pytest.mark.parametrize("largest", [1.0, 10.0, 1e6])
def test_metric_tells_no_more_than_is_said(largest: float) -> None:
    values = np.concatenate([np.linspace(0.0, 1.0, 5001), np.geomspace(1.0, largest, 50_000)])
    assert different(lambda value: gate.show_metric(value, exact=False), values) <= gate.bits_of_value(largest) + 0.01
    assert gate.show_metric(1234.5678, exact=False) == 1230.0
    assert gate.show_metric(1234.5678, exact=True) == 1234.5678
    assert gate.bits_of_value(-0.5) == gate.bits_of_value(0.5) + 1


def scored(server: Instance, extra: str) -> tuple[Competition, Submission, PublicScore]:
    competition = server.competition(extra=extra)
    submission = server.submit(server.participant()).json()["id"]
    server.score(submission, 0.3333333)
    with server.database.write() as session:
        found = session.query(PublicScore).one()
        found.interval_low, found.interval_high = 0.3, 0.4
        found.details = {"run_wall_time_s": 0.31, "epsilon_percentiles": {"50": 1.23456}, "share_above": 0.98765}
        session.flush()
        return competition, session.get_one(Submission, submission), found


def test_ladder_shows_no_part_of_a_score(server: Instance) -> None:
    competition, submission, found = scored(server, LADDER + OPEN)
    shown = gate.score(found, competition, rung=0.4)
    assert (shown.final_score, shown.interval_low, shown.breakdown) == (0.4, None, None)
    assert gate.bits_counted(shown) == gate.BITS_OF_A_RUN_TIME + gate.BITS_OF_A_CONFIRMATION
    with server.database.write() as session:
        row = session.get_one(Submission, submission.id)
        row.disqualified_at = row.received_at
    answer = server.client.get(f"/api/v1/submissions/{submission.id}", headers=auth_headers(server, "ada"))
    assert answer.json()["score"] is None
    assert "0.333" not in answer.text


def test_opened_parts_are_counted_with_a_score(server: Instance) -> None:
    competition, _, found = scored(server, OPEN)
    shown = gate.score(found, competition)
    assert (shown.final_score, shown.interval_low) == (0.33333, 0.3)
    assert shown.breakdown is not None
    assert shown.breakdown.epsilon_percentiles == {"50": 1.23}
    assert shown.computed_at.second == shown.computed_at.microsecond == 0
    counted = gate.bits_counted(shown)
    assert shown.breakdown.share_above == 0.988
    assert counted == pytest.approx(2 * 16.61 + 4 * 10 + gate.bits_of_value(1.23) + 3.7 + 1, abs=0.1)


def test_time_of_a_run_is_counted_in_the_budget_when_it_is_scored(server: Instance) -> None:
    competition = server.competition()
    submission = server.submit(server.participant()).json()["id"]
    server.score(submission, 0.25, details={"run_wall_time_s": 0.31})
    with server.database.read() as session:
        counted = [row.bits for row in session.query(Disclosure)]
    assert counted == [gate.BITS_OF_A_RUN_TIME + gate.BITS_OF_A_CONFIRMATION]
    values = dict.fromkeys(("final_score", "forgetting_quality", "retain_ratio", "test_ratio"), 1 / 3)
    found = PrivateScore(scorer_version="1", details={}, computed_at=competition.created_at, **values)
    assert gate.score(found, competition).final_score == 1 / 3, "a private score is exact"


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
        ids = {"evaluation_id": evaluation.id, "split_id": evaluation.split_id}
        ids |= {"team_id": row.team_id, "competition_id": row.competition_id}
        each = N // SHARDS
        shards = [Shard(**ids, first_run=place * each, n_runs=each, attempt=1) for place in range(SHARDS)]
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


def test_team_sees_few_steps_and_its_organisers_every_run(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, set_done = running
    ada, olga = auth_headers(server, "ada"), auth_headers(server, "olga")
    seen, exact = set(), []
    for done in (*range(0, N, 37), N):
        set_done(done)
        shown = server.shown(ada, submission)["progress"]
        seen.add(shown["runs_done"])
        assert 0 <= done - shown["runs_done"] < N / STEPS
        assert (shown["remaining_s"] is None) == (shown["runs_done"] in (0, N))
        (everything,) = server.client.get("/api/v1/competitions/digits/all-submissions", headers=olga).json()
        exact.append(everything["progress"]["runs_done"])
    assert seen == {0, 128, 256, 384, 512}
    assert exact == [*range(0, N, 37), N]
    attempts = (shown["attempts"][0], everything["progress"]["attempts"][0])
    assert [one["started_at"].endswith(":00Z") for one in attempts] == [True, False], "a team is told the minute"


def test_pages_and_streams_show_the_same_steps(server: Instance, running: tuple[str, SetDone]) -> None:
    submission, set_done = running
    set_done(165)
    ada = Visitor(server, "ada")
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
