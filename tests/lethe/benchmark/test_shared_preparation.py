"""A cell's models are trained by every process that has time, and are the same as those of one process."""

import time
from functools import partial

import pytest

from lethe.benchmark import execution
from lethe.benchmark.execution import SharedPreparation
from lethe.benchmark.plan import read_plan
from lethe.benchmark.store import BenchmarkFolder
from lethe.data.errors import InvalidSplit
from lethe.evaluation.manifest import Manifest
from lethe.preparation import model_shards
from lethe.preparation.prepare import begin_split, prepare_shard


@pytest.fixture
def cell(write_benchmark, monkeypatch):
    """Return a cell whose four models a side are trained in two shards."""
    monkeypatch.setattr(execution, "begin_split", partial(begin_split, share_from_s=0))
    monkeypatch.setattr(model_shards, "MODELS_PER_SHARD", 2)
    return read_plan(write_benchmark()).cells[0]


class Trained:
    """Stands for prepare_shard: notes who trains what, and lets `meanwhile` act once a shard is begun."""

    def __init__(self, monkeypatch) -> None:
        self.who, self.shards = "leader", []
        self.meanwhile = lambda: None
        monkeypatch.setattr(execution, "prepare_shard", self)

    def __call__(self, *parts, kind, shard, **options) -> None:
        self.shards.append((self.who, kind, shard))
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        prepare_shard(*parts, kind=kind, shard=shard, **options)


def lead(cell, folder):
    SharedPreparation(cell, folder, device="cpu").lead(lambda _: None)


def files(cell, folder):
    return {path: record.sha256 for path, record in Manifest.read(folder.split_dir(cell)).files.items()}


def helped(trained, cell, folder, *, device="cpu", is_over=False):
    def work() -> None:
        trained.who = "helper"
        SharedPreparation(cell, folder, device=device).help(is_over=lambda: is_over)
        trained.who = "leader"

    return work


def test_a_helper_trains_what_the_leader_is_not_at(cell, tmp_path, monkeypatch):
    alone, shared = BenchmarkFolder(tmp_path / "alone"), BenchmarkFolder(tmp_path / "shared")
    lead(cell, alone)
    trained = Trained(monkeypatch)
    trained.meanwhile = helped(trained, cell, shared)
    lead(cell, shared)
    assert [shard for shard in trained.shards if shard[0] == "helper"] == [
        ("helper", "oracle", 1),
        ("helper", "oracle", 0),
        ("helper", "retrained", 1),
    ]
    assert trained.shards[0] == ("leader", "retrained", 0)
    assert files(cell, shared) == files(cell, alone)


def test_the_leader_trains_what_a_killed_helper_was_at(cell, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    folder, trained = BenchmarkFolder(tmp_path), Trained(monkeypatch)

    def killed_helper() -> None:
        trained.meanwhile = die
        with pytest.raises(Killed):
            SharedPreparation(cell, folder, device="cpu").help(is_over=lambda: False)

    trained.meanwhile = killed_helper
    lead(cell, folder)
    assert folder.is_prepared(cell)


def test_the_leader_waits_for_a_shard_in_other_hands(cell, tmp_path, monkeypatch):
    folder = BenchmarkFolder(tmp_path)
    held = folder.claimed(cell.key, "oracle", "1")
    assert held.__enter__()
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        held.__exit__(None, None, None)

    monkeypatch.setattr(execution.time, "sleep", wait)
    lead(cell, folder)
    assert waits == [execution.WAIT_S]
    assert folder.is_prepared(cell)


@pytest.mark.parametrize("options", [{"device": "cuda"}, {"is_over": True}])
def test_a_helper_of_another_device_or_after_its_time_begins_nothing(options, cell, tmp_path, monkeypatch):
    folder, trained = BenchmarkFolder(tmp_path), Trained(monkeypatch)
    helped(trained, cell, folder)()
    assert trained.shards == [], "nothing is there before the data is made"
    trained.meanwhile = helped(trained, cell, folder, **options)
    lead(cell, folder)
    assert [who for who, _, _ in trained.shards] == ["leader"] * 4


def test_a_helper_with_an_old_list_leaves_a_prepared_split_alone(cell, tmp_path, monkeypatch):
    folder, trained = BenchmarkFolder(tmp_path), Trained(monkeypatch)
    helper = SharedPreparation(cell, folder, device="cpu")
    old = []
    trained.meanwhile = lambda: old.extend(helper._listed())
    lead(cell, folder)
    made = files(cell, folder)
    assert len(old) == 4
    assert helper._train(old, lambda _: None)
    assert len(trained.shards) == 4
    assert files(cell, folder) == made
    assert not (folder.split_dir(cell) / "work").exists()


def test_a_leader_that_fails_leaves_no_list(cell, tmp_path, monkeypatch):
    folder = BenchmarkFolder(tmp_path)

    def fail(*parts, **options) -> None:
        raise InvalidSplit("it does not learn")

    monkeypatch.setattr(execution, "prepare_shard", fail)
    with pytest.raises(InvalidSplit):
        lead(cell, folder)
    assert SharedPreparation(cell, folder, device="cpu")._listed() == []


def test_a_failure_beside_is_not_tried_again(cell, tmp_path):
    folder = BenchmarkFolder(tmp_path)
    folder.record_cell_failure(cell, "it does not learn")
    assert folder.cell_failure(cell, since=time.time() - 60) == "it does not learn"
    assert folder.cell_failure(cell, since=time.time() + 60) == ""
