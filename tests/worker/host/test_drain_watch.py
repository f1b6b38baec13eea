"""A drained worker that does not end says why."""

from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from worker.host import drain_watch


class Ended(Exception):
    pass


def test_worker_that_does_not_end_names_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    running = SimpleNamespace(name="lethe.evaluate_shard", worker_pid=17, time_start=1.0)
    monkeypatch.setattr(drain_watch.state, "active_requests", [running])
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise Ended

    with capture_logs() as logs, pytest.raises(Ended):
        drain_watch._watch(70.0, 30.0, sleep)
    assert waits == [70.0, 30.0, 30.0]
    assert [line["event"] for line in logs] == ["asked to stop and not ended yet"] * 2
    assert "lethe.evaluate_shard in process 17 for" in logs[0]["waits_for"][0]
