"""Of messages that ask for the same, the first within a while is followed."""

import time

import pytest

from worker.pace import Pace


def test_only_the_first_of_a_pile_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    pace = Pace(5.0)
    assert [pace.allows() for _ in range(3)] == [True, False, False]
    moment = 104.9
    assert not pace.allows()
    moment = 105.0
    assert [pace.allows(), pace.allows()] == [True, False]
