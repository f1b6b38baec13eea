"""The audit log is only ever added to; when upkeep was last done; figures for Prometheus."""

import math
import threading

import pytest
from alembic import command
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError, OperationalError

from server import audit, last_times
from server.config import get_settings
from server.evaluations import leases
from server.health import Readiness
from server.last_times import Upkeep
from server.migrate import alembic_config
from server.models.account import Role
from server.models.worker import WorkerFacts
from server.prometheus.exposition import KEPT_FOR_S, LastFigures
from server.workers import registration
from server.workers.registration import Fitting
from tests.support.instance import Instance
from tests.support.ports import free_port

LOG = "/api/v1/competitions/digits/audit"


@pytest.mark.parametrize("statement", ["UPDATE audit_events SET reason = 'other'", "DELETE FROM audit_events"])
def test_the_database_refuses_to_change_an_event(both: Instance, statement: str) -> None:
    with both.database.write() as session:
        audit.record(session, None, "test.done", reason="why")
    with pytest.raises(DatabaseError, match="append-only"), both.database.write() as session:
        session.execute(text(statement))
    with both.database.read() as session:
        assert session.scalar(text("SELECT reason FROM audit_events WHERE action = 'test.done'")) == "why"


def test_an_event_is_stored_with_its_act_or_not_at_all(server: Instance) -> None:
    def act_and_fail() -> None:
        with server.database.write() as session:
            audit.record(session, None, "test.done")
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        act_and_fail()
    with server.database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM audit_events WHERE action = 'test.done'")) == 0


def test_log_is_filtered_and_paged(both: Instance) -> None:
    organiser = both.account("olga", Role.ORGANISER)
    both.competition(organiser=organiser)
    olga = both.headers(organiser)
    for _ in range(3):
        both.submit(both.participant(f"ada{_}"))
    everything = both.client.get(LOG, headers=olga).json()
    assert [event["id"] for event in everything] == sorted((event["id"] for event in everything), reverse=True)
    received = both.client.get(LOG, headers=olga, params={"action": "submission.received"}).json()
    assert {event["actor"] for event in received} == {"ada0", "ada1", "ada2"}
    first = both.client.get(LOG, headers=olga, params={"limit": 1}).json()
    second = both.client.get(LOG, headers=olga, params={"limit": 1, "before_id": first[0]["id"]}).json()
    assert [*first, *second] == everything[:2]
    by_ada1 = both.client.get(LOG, headers=olga, params={"actor": "ada1"}).json()
    assert {event["action"] for event in by_ada1} == {"team.created", "submission.received"}
    later = both.client.get(LOG, headers=olga, params={"since": "2999-01-01T00:00:00Z"}).json()
    assert later == []
    assert both.client.get(LOG, headers=olga, params={"since": "2999-01-01T00:00:00"}).status_code == 422


def test_triggers_go_and_come_with_their_migration(database_url: str) -> None:
    config = alembic_config(database_url)
    command.upgrade(config, "0002")
    command.downgrade(config, "0001")
    command.upgrade(config, "0002")


LOCK_WAIT_S = 0.5  # long enough that the other thread waits for the row


def test_two_may_note_the_first_time_at_once(both):
    failures, begun = [], threading.Event()

    def note_too():
        begun.set()
        try:
            with both.database.write() as session:
                last_times.note(session, Upkeep.BEAT)
        except Exception as error:
            failures.append(error)

    other = threading.Thread(target=note_too)
    with both.database.write() as session:
        last_times.note(session, Upkeep.BEAT)
        other.start()
        begun.wait()
        other.join(LOCK_WAIT_S)
    other.join()
    assert failures == []
    with both.database.read() as session:
        assert set(last_times.ages_s(session)) == {Upkeep.BEAT.value}


def test_a_later_note_has_a_later_time(both):
    for _ in range(2):
        with both.database.write() as session:
            last_times.note(session, Upkeep.SWEEP)
    with both.database.read() as session:
        assert 0 <= last_times.ages_s(session)["sweep"] < 60


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
        registration.report(session, WorkerFacts("w", "cpu", 1024, {}), Fitting((), {"s": "too small"}))
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


def test_upkeep_that_was_never_done_is_infinitely_old(both: Instance) -> None:
    assert values(both)['lethe_upkeep_age_seconds{what="beat"}'] == math.inf
    with both.database.write() as session:
        last_times.note(session, Upkeep.BEAT)
    found = values(both)
    assert found['lethe_upkeep_age_seconds{what="beat"}'] < 60
    assert found['lethe_upkeep_age_seconds{what="sweep"}'] == math.inf


def fail(*_: object) -> None:
    raise OperationalError("select", {}, Exception("the database has just gone"))


def silent(both: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_ready() -> Readiness:
        return Readiness(ready=False, database="silent", storage="ok", queue="ok")

    monkeypatch.setattr(both.client.app.state.readiness, "get", not_ready)  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["not ready", "fails"])
def test_figures_stay_for_a_while_when_the_database_is_silent(both, monkeypatch, how):
    passed = [0.0]
    monkeypatch.setattr(both.client.app.state, "last_figures", LastFigures(lambda: passed[0]))  # type: ignore[attr-defined]
    both.competition()
    assert both.submit(both.participant()).status_code == 201
    assert values(both)["lethe_shards_queued"] == 1
    if how == "fails":
        monkeypatch.setattr("server.prometheus.exposition.figures", fail)
    else:
        silent(both, monkeypatch)
    passed[0] = KEPT_FOR_S - 1
    assert values(both)["lethe_shards_queued"] == 1
    passed[0] = KEPT_FOR_S + 1
    found = values(both)
    assert "lethe_shards_queued" not in found
    assert "lethe_database_pool_used_ratio" in found


def test_services_are_told_apart(both: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_REDIS_URL", f"redis://127.0.0.1:{free_port()}")
    get_settings.cache_clear()
    found = values(both)
    answers = {name: found[f'lethe_service_answers{{service="{name}"}}'] for name in ("database", "storage", "queue")}
    assert answers == {"database": 1, "storage": 1, "queue": 0}
