"""What the gate counts is never less than what it shows."""

from math import log2

import numpy as np
import pytest

from server.disclosure import gate
from server.models.competition import Competition
from server.models.evaluation import Disclosure, PrivateScore, PublicScore
from server.models.submission import Submission
from tests.support.instance import Instance

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
    competition, _, found = scored(server, LADDER + OPEN)
    shown = gate.score(found, competition, rung=0.4)
    assert (shown.final_score, shown.interval_low, shown.breakdown) == (0.4, None, None)
    assert gate.bits_counted(shown) == gate.BITS_OF_A_RUN_TIME + gate.BITS_OF_A_CONFIRMATION


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
    server.competition()
    submission = server.submit(server.participant()).json()["id"]
    server.score(submission, 0.25, details={"run_wall_time_s": 0.31})
    with server.database.read() as session:
        assert [row.bits for row in session.query(Disclosure)] == [
            gate.BITS_OF_A_RUN_TIME + gate.BITS_OF_A_CONFIRMATION
        ]


def test_disqualified_submission_has_no_score_on_a_ladder(server: Instance) -> None:
    ada = server.participant()
    server.competition(extra=LADDER)
    submission = server.submit(ada).json()["id"]
    server.score(submission, 0.3333333)
    with server.database.write() as session:
        row = session.get_one(Submission, submission)
        row.disqualified_at = row.received_at
    shown = server.client.get(f"/api/v1/submissions/{submission}", headers=ada)
    assert shown.json()["score"] is None
    assert "0.333" not in shown.text


def test_private_score_is_exact(server: Instance) -> None:
    competition = server.competition()
    values = dict.fromkeys(("final_score", "forgetting_quality", "retain_ratio", "test_ratio"), 1 / 3)
    found = PrivateScore(scorer_version="1", details={}, computed_at=competition.created_at, **values)
    assert gate.score(found, competition).final_score == 1 / 3
