"""Hosts taken out of service: who may do it, what it returns to the queue, and how it ends."""

import pytest
from sqlalchemy import select

from lethe.errors import InvalidInput, NotFound
from server.db import Database
from server.models.account import AuditEvent
from server.models.evaluation import Shard, ShardState
from server.models.worker import Worker
from server.workers import registration
from tests.server.evaluations.conftest import Submit, competition, database, sent, submit
from tests.support.leases import claim

__all__ = ["competition", "database", "sent", "submit"]


@pytest.fixture
def two_hosts(database: Database) -> None:
    with database.write() as session:
        session.add_all(
            Worker(name=name, device="cpu", memory_mib=1, versions={}) for name in ("a-b-1", "a-b-2", "a-3")
        )


@pytest.mark.usefixtures("two_hosts")
def test_cordoned_host_gives_its_reason_to_all_its_processes(database: Database) -> None:
    with database.write() as session:
        registration.cordon(session, "a-b", why="a new disk", actor=None)
        assert [registration.reason(session, name) for name in ("a-b-1", "a-b-77", "a-3")] == [
            "cordoned: a new disk",
            "cordoned: a new disk",
            "",
        ]
        registration.uncordon(session, "a-b", actor=None)
        assert not registration.reason(session, "a-b-1")
        actions = session.scalars(select(AuditEvent.action).where(AuditEvent.action.like("host.%"))).all()
    assert actions == ["host.cordoned", "host.uncordoned"]


@pytest.mark.usefixtures("two_hosts")
def test_drained_host_returns_its_shards_alone(database: Database, submit: Submit) -> None:
    submit("team")
    held = claim(database, worker="a-b-1")
    kept = claim(database, worker="a-3")
    with database.write() as session:
        assert registration.cordon(session, "a-b", why="a new disk", actor=None, drain=True) == 1
        back, left = (session.get_one(Shard, each.shard_id, populate_existing=True) for each in (held, kept))
        assert (back.state, back.failed_attempts) == (ShardState.QUEUED.value, 0)
        assert left.state == ShardState.LEASED.value


@pytest.mark.usefixtures("two_hosts")
def test_cordon_refuses_an_unknown_host_and_an_empty_reason(database: Database) -> None:
    with database.write() as session:
        with pytest.raises(NotFound, match=r"'elsewhere'; they came from: a, a-b"):
            registration.cordon(session, "elsewhere", why="x", actor=None)
        with pytest.raises(InvalidInput, match="why"):
            registration.cordon(session, "a", why=" ", actor=None)
        with pytest.raises(NotFound, match="not cordoned"):
            registration.uncordon(session, "a", actor=None)
