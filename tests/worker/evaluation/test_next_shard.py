"""What a process reports where it takes nothing, and what brings it back."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.competitions import preparation_turns
from server.config import Settings
from server.db import Database
from server.models.worker import Worker, WorkerFacts, WorkerState
from server.workers import registration
from worker.evaluation.shard_pipeline import claim
from worker.host import backoff
from worker.host.backoff import QUARANTINE_AFTER, Cooling
from worker.transport import DatabaseTransport

FACTS = WorkerFacts("host-1", "cpu", 1024, {"torch": "2.11.0"})


@pytest.fixture
def context(migrated_sqlite_url: str, tmp_path: Path) -> Any:
    database = Database(migrated_sqlite_url)
    settings = Settings(home=tmp_path, sandbox_backend="plain", environment="embedded")
    transport: Any = DatabaseTransport(database, None, settings, FACTS)  # type: ignore[arg-type]
    yield SimpleNamespace(settings=settings, cooling=Cooling(), database=database, transport=transport)
    database.dispose()


def reported(context: Any) -> tuple[str, str]:
    with context.database.read() as session:
        row = session.get_one(Worker, FACTS.name)
        return row.state, row.detail


def test_cooling_process_says_why(context: Any) -> None:
    context.cooling.fault("no space left")
    assert claim(context, context.transport) is None
    assert reported(context) == (WorkerState.COOLING, "no space left")


def test_quarantined_process_takes_work_only_after_its_canary(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = ["the disk is full", ""]
    monkeypatch.setattr(backoff, "problem", lambda _: problems.pop(0))
    for _ in range(QUARANTINE_AFTER):
        context.cooling.fault("no space left")
    assert claim(context, context.transport) is None
    assert reported(context) == (WorkerState.QUARANTINED, "no space left")
    context.cooling._until = 0.0
    assert claim(context, context.transport) is None
    assert reported(context) == (WorkerState.QUARANTINED, "the disk is full")
    context.cooling._until = 0.0
    assert claim(context, context.transport) is None, "nothing waits, but it asked"
    assert reported(context) == (WorkerState.ACTIVE, "")
    assert not problems
    context.cooling.fault("again")
    assert context.cooling.is_quarantined, "one shard was its trial"


def test_process_that_prepares_first_is_known_beforehand(context: Any) -> None:
    """A preparation takes a share of the processes that are known: one that nobody knew was no process."""
    with context.database.write() as session:
        assert preparation_turns.find(session, context.settings).most == 1
    for name in ("host-1", "host-2"):
        replace(context.transport, facts=replace(FACTS, name=name)).report()
    with context.database.write() as session:
        assert preparation_turns.find(session, context.settings).most == 2


def test_process_of_a_cordoned_host_drains(context: Any) -> None:
    claim(context, context.transport)
    assert reported(context) == (WorkerState.ACTIVE, "")
    with context.database.write() as session:
        registration.cordon(session, "host", why="a new disk", actor=None)
    claim(context, context.transport)
    assert reported(context) == (WorkerState.DRAINING, "cordoned: a new disk")


def test_canary_names_a_scratch_folder_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(home=tmp_path / "file", sandbox_backend="plain", environment="embedded")
    assert "cannot be written" in backoff.problem(settings)


@pytest.mark.slow
def test_canary_runs_on_a_healthy_host(tmp_path: Path) -> None:
    assert not backoff.problem(Settings(home=tmp_path, environment="embedded"))
