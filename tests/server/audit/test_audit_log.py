"""The audit log: only ever added to, filterable, for organisers."""

import pytest
from alembic import command
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from server import audit
from server.migrate import alembic_config
from server.models.account import Role
from tests.support.instance import Instance

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
