"""While a competition takes submissions, preparations leave one process of each worker for them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.config import Settings
from server.db import Database
from server.models.competition import CompetitionState
from tests.support.instance import Instance, instance
from worker.preparation.preparation_slots import preparation_slot


@pytest.fixture
def context(migrated_sqlite_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with instance(monkeypatch, database_url=migrated_sqlite_url, redis_url=redis_url, folder=tmp_path) as running:
        yield running, SimpleNamespace(settings=Settings(worker_concurrency=2), database=running.database)


def taken(context: Any) -> list[bool]:
    """Ask for three slots at a time."""
    with preparation_slot(context) as one, preparation_slot(context) as two, preparation_slot(context) as three:
        return [one, two, three]


def test_every_process_may_prepare_while_nothing_is_open(context: Any) -> None:
    assert taken(context[1]) == [True, True, False]


def test_one_process_is_left_for_submissions(context: tuple[Instance, Any]) -> None:
    running, tools = context
    assert isinstance(tools.database, Database)
    running.competition(state=CompetitionState.OPEN)
    assert taken(tools) == [True, False, False]
    assert taken(tools) == [True, False, False], "a slot is free again once it was left"
