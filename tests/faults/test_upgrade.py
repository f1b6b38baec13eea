"""A rolling upgrade: the next version's migration while this version's web server and workers are busy."""

import threading

import pytest
from alembic import command
from sqlalchemy import select

from server import migrate
from server.db import Database
from server.models.competition import Competition
from tests.faults.cluster import Cluster, code, wait_until
from tests.support.cluster_records import scored_like
from tests.support.next_version import with_next_version

pytestmark = pytest.mark.slow


def _change_by_the_next_version(cluster: Cluster) -> None:
    """Store the competition as the next version's web server does: with keys that this version does not know."""
    with Database(cluster.settings.resolved_database_url) as database, database.write() as session:
        row = session.scalars(select(Competition)).one()
        row.config = {**row.config, "of_the_next": 1, "limits": {**row.config["limits"], "of_the_next": 2}}


def test_next_versions_migration_under_running_work(cluster, worker, undisturbed, tmp_path, monkeypatch):
    with_next_version(monkeypatch, tmp_path / "next")
    before = cluster.submit("upgraded", code(pause=0.3, note="before the migration"))
    wait_until(lambda: cluster.runs_done(before) >= 1)
    is_over = threading.Event()
    failed: list[Exception] = []

    def read() -> None:
        while not is_over.wait(0.1):
            try:
                cluster.person("reader").leaderboard("tiny")
            except Exception as error:
                failed.append(error)

    reader = threading.Thread(target=read)
    cluster.person("reader")
    reader.start()
    try:
        migrate.upgrade(cluster.settings.resolved_database_url)
        _change_by_the_next_version(cluster)
        during = cluster.submit("upgraded-after", code(note="after the migration"))
        scored_like(cluster, "upgraded", before, undisturbed)
        scored_like(cluster, "upgraded-after", during, undisturbed)
    finally:
        is_over.set()
        reader.join()
        command.downgrade(migrate.alembic_config(cluster.settings.resolved_database_url), "-1")
    assert failed == []
    assert worker.is_alive
