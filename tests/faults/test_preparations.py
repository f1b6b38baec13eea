"""A split that several workers make together, on PostgreSQL and Redis, through Celery: one of them is killed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from server.models.competition import ModelShard
from tests.faults.cluster import Cluster, split_row, wait_until
from tests.faults.forked import Process

pytestmark = pytest.mark.slow


@pytest.fixture
def made_by_one(cluster: Cluster) -> Iterator[Path]:
    """The private split as one worker made it; it is there again afterwards."""
    split = cluster.folder / "storage" / "splits" / "tiny" / "private"
    kept, manifest = split.with_name("private-made-by-one"), split_row(cluster).manifest_sha256
    shutil.move(split, kept)
    yield kept
    shutil.rmtree(split)
    shutil.move(kept, split)
    with cluster.database.engine.begin() as connection:
        connection.execute(
            text("UPDATE splits SET manifest_sha256 = :sha256 WHERE visibility = 'private'"), {"sha256": manifest}
        )


def shards(cluster: Cluster) -> list[ModelShard]:
    with cluster.database.read() as session:
        return session.query(ModelShard).order_by(ModelShard.id).all()


def results(split: Path) -> dict[str, str]:
    """Return the SHA-256 of what scores depend on. How models lie in files is not the same where they are divided."""
    files = json.loads((split / "manifest.json").read_text())["files"]
    return {
        name: record["sha256"]
        for name, record in files.items()
        if name.endswith(".safetensors") and "/models-" not in name
    }


def start(cluster: Cluster, name: str, held: Path) -> Process:
    return cluster.start_worker(name, program="tests.faults.dividing_celery", HELD=str(held))


def test_worker_killed_with_a_model_shard_costs_one_attempt(cluster, made_by_one, tmp_path):
    workers = [start(cluster, name, tmp_path) for name in ("first", "second")]
    with cluster.database.engine.begin() as connection:
        connection.execute(text("UPDATE splits SET state = 'pending' WHERE visibility = 'private'"))
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2, about=lambda: f"{split_row(cluster).stage}")
    held = [shard for shard in shards(cluster) if shard.state == "leased"]
    assert len({shard.worker for shard in held}) == 2
    pid = int(str(held[0].worker).rsplit("-", 1)[1])
    victim = next(worker for worker in workers if pid in worker.children())
    victim.kill()
    (tmp_path / "go").touch()
    wait_until(lambda: split_row(cluster).state == "ready", about=lambda: f"{split_row(cluster).stage}")
    made = {shard.id: (shard.state, shard.attempt, shard.failed_attempts) for shard in shards(cluster)}
    assert len(made) == 4
    assert made.pop(held[0].id) == ("done", 2, 1)
    assert set(made.values()) == {("done", 1, 0)}
    assert results(cluster.folder / "storage/splits/tiny/private") == results(made_by_one)
