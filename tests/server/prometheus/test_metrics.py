"""/metrics tells what an operator needs, to those who may read it."""

import pytest

from server.config import get_settings
from server.evaluations import leases
from server.worker_facts import WorkerFacts
from server.workers import service as workers
from server.workers.compatibility import Fitting
from tests.support.instance import Instance


def values(both: Instance) -> dict[str, float]:
    lines = both.client.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_figures_follow_the_queue(both: Instance) -> None:
    both.competition()
    assert values(both)["lethe_queue_age_seconds"] == 0
    assert both.submit(both.participant()).status_code == 201
    found = values(both)
    assert found["lethe_queue_age_seconds"] > 0
    assert (found["lethe_shards_queued"], found["lethe_shards_leased"]) == (1, 0)
    with both.database.write() as session:
        leases.claim(session, worker="w", lease_s=60)
        workers.report(session, WorkerFacts("w", "cpu", 1024, {}), Fitting((), {"s": "too small"}))
    found = values(both)
    assert (found["lethe_shards_queued"], found["lethe_shards_leased"]) == (0, 1)
    assert found['lethe_workers{device="cpu",state="active"}'] == 1
    assert found["lethe_worker_refusals"] == 1


def test_requests_are_counted_by_route_not_by_path(both: Instance) -> None:
    both.client.get("/api/v1/submissions/0123456789abcdef")
    both.client.get("/nowhere/at/all")
    text = both.client.get("/metrics").text
    assert "0123456789abcdef" not in text
    assert "nowhere" not in text
    assert 'route="/api/v1/submissions/{submission_id}",status="401"' in text


def test_token_is_asked_for_where_one_is_set(both: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_METRICS_TOKEN", "prometheus-may")
    get_settings.cache_clear()
    assert both.client.get("/metrics").status_code == 401
    assert both.client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert both.client.get("/metrics", headers={"Authorization": "Bearer prometheus-may"}).status_code == 200
