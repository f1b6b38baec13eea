"""A worker whose host lacks a required protection takes no shard, and says how to get what is missing.

The protections that an operator adds are control groups, which root has here and an ordinary user has not: so these
tests run as an ordinary user, whoever runs the suite (tests/sandbox/test_cgroups.py runs them where that is root).
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import HostFault
from sandbox.controls import Control, MissingControls
from sandbox.host_controls import host_controls
from sandbox.policy import Isolation
from server import queue
from server.config import Settings
from server.db import Database
from server.evaluations import leases
from server.models.competition import Competition
from server.models.evaluation import Shard, ShardAttempt
from server.models.submission import Submission
from server.models.worker import Worker
from server.storage import Storage
from tests.sandbox.conftest import GOOD, write_split
from tests.server.evaluations.conftest import _competition, add_submission
from worker.context import WorkerContext
from worker.evaluation.shard_pipeline import claim, run_shard
from worker.host.worker_info import missing_here, worker_facts
from worker.split_storage.split_cache import SplitCache
from worker.transport import DatabaseTransport

GROUPS = frozenset({Control.MEMORY_GROUP, Control.PROCESS_GROUP})
without_groups = pytest.mark.skipif(
    bool(GROUPS & host_controls("bubblewrap").achieved), reason="this user may make control groups"
)


@pytest.fixture
def database(migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(queue, "send", lambda *_, **__: True)  # nobody is listening
    database = Database(migrated_sqlite_url)
    yield database
    database.dispose()


@pytest.fixture
def competition(database: Database) -> Competition:
    return _competition(database)


@pytest.fixture
def context(database: Database, tmp_path: Path) -> Iterator[WorkerContext]:
    settings = Settings(sandbox_required="strict", home=tmp_path / "home")
    storage = Storage((tmp_path / "storage").as_uri())
    split = tmp_path / "split"
    artefacts: Any = SimpleNamespace(split=lambda _shard: split, package=lambda _shard: GOOD.encode())
    facts = worker_facts(settings)
    transport = DatabaseTransport(database, storage, settings, facts)
    context = WorkerContext(
        settings=settings,
        facts=facts,
        leases=transport,
        transport=transport,
        artefacts=artefacts,
        cache=SplitCache(tmp_path / "cache", cap_bytes=1),
        database=database,
        storage=storage,
    )
    context.stage_dir.mkdir(parents=True, exist_ok=True)
    yield context
    context.close()


@without_groups
def test_worker_claims_nothing_and_tells_organisers_why(context, database, competition):
    add_submission(database, competition, "ada")
    assert claim(context, context.transport) is None
    with database.read() as session:
        (row,) = session.query(Worker).all()
        assert len(row.refusals) == 2  # the public split and the private one
        assert set(row.refusals.values()) == {" ".join(missing_here(context.settings))}
        assert {shard.state for shard in session.query(Shard)} == {"queued"}


@without_groups
def test_worker_that_asks_for_less_claims_here(context, database, competition):
    add_submission(database, competition, "ada")
    context.transport.settings = Settings(sandbox_required="baseline", home=context.settings.home)
    assert claim(context, context.transport) is not None


@without_groups
def test_claimed_shard_goes_back_as_a_host_fault(context, database, competition, tmp_path):
    write_split(tmp_path / "split" / "sample")
    submission = add_submission(database, competition, "ada", smoke=True)
    with database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
    assert shard is not None
    with pytest.raises(MissingControls, match="'memory-group' is required and missing") as refused:
        run_shard(context, shard)
    assert tuple(refused.value.sentences) == missing_here(context.settings)
    with database.read() as session:
        row = session.get_one(Shard, shard.shard_id)
        assert (row.state, row.failed_attempts) == ("queued", 1)
        assert session.get_one(Submission, submission.id).fault is None
    assert context.cooling.is_on


def test_controls_and_every_limit_are_stored_with_the_attempt(context, database, competition, tmp_path):
    """They are all of the protections, and all are asked for, where this user may make control groups."""
    here = host_controls("bubblewrap").achieved
    asked_for = "strict" if here >= GROUPS else "baseline"
    context.settings = Settings(sandbox_required=asked_for, home=context.settings.home)
    assert missing_here(context.settings) == ()
    data_dir = write_split(tmp_path / "split" / "sample")
    add_submission(database, competition, "ada", smoke=True)
    with database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
    assert shard is not None
    assert run_shard(context, shard) == "done"
    with database.read() as session:
        (stored,) = [attempt.controls for attempt in session.query(ShardAttempt)]
    assert stored is not None
    assert set(stored["policy"]) >= {
        *("wall_time_s", "idle_time_s", "cpu_time_s", "memory_mib", "processes", "threads", "cpus", "open_files"),
        *("scratch_mib", "scratch_inodes", "shared_memory_mib", "file_size_mib", "log_kib", "frame_mib"),
        *("max_abs_weight", "device", "devices", "mounts", "isolation"),
    }
    assert set(stored["achieved"]) == {control.value for control in here}
    assert here == set(Control) or asked_for == "baseline"
    assert stored["kernel_uid"] != 0
    assert stored["frame_bytes"] == (data_dir / "original_model.safetensors").stat().st_size
    assert stored["frames"] == 1


@without_groups
def test_remote_worker_refuses_to_start_and_doctor_says_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("LETHE_WORKER_TOKEN", "lethe_worker_x")
    monkeypatch.setenv("LETHE_SANDBOX_REQUIRED", "strict")
    monkeypatch.setenv("LETHE_HOME", str(tmp_path))
    refused = CliRunner().invoke(build_app(), ["worker", "--server", "http://127.0.0.1:1"])
    assert isinstance(refused.exception, HostFault)
    assert refused.exception.detail == " ".join(missing_here(Settings()))
    examined = CliRunner().invoke(build_app(), ["doctor", "--json"])
    (line,) = [line for line in examined.stdout.splitlines() if '"sandbox"' in line]
    assert examined.exit_code == 1
    assert '"state": "wrong"' in line
    assert refused.exception.detail in line


def test_required_protections_cannot_be_asked_of_no_boundary() -> None:
    with pytest.raises(ValueError, match="cannot be had from LETHE_SANDBOX_BACKEND=plain"):
        Settings(sandbox_required="strict", sandbox_backend="plain")


def test_foretold_protections_are_those_of_shard_mode_too() -> None:
    assert Control.RUN_ISOLATION not in host_controls("bubblewrap", isolation=Isolation.SHARD).achieved
    assert host_controls("plain").achieved <= {Control.NOT_ROOT}
