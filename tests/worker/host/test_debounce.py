"""Of messages that ask for the same, the first within a while is followed."""

import time

import pytest

from worker.server_tasks import Pace


def test_only_the_first_of_a_pile_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    pace = Pace(5.0)
    assert [pace.allows() for _ in range(3)] == [True, False, False]
    moment = 104.9
    assert not pace.allows()
    moment = 105.0
    assert [pace.allows(), pace.allows()] == [True, False]


def test_slow_job_leaves_as_much_time_to_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    pace = Pace(5.0)
    assert pace.allows()
    moment = 120.0
    pace.rest()
    moment = 139.0
    assert not pace.allows()
    moment = 140.0
    assert pace.allows()
    pace.rest()
    moment = 145.0
    assert pace.allows()
