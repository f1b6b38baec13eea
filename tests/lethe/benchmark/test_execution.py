"""A benchmark computes what is missing, once, and goes on where it was ended."""

import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from lethe.benchmark.execution import UnfinishedBenchmark
from lethe.benchmark.method_runs import child_runs, stored_outputs
from lethe.benchmark.plan import read_plan
from lethe.benchmark.progress import ShareDone, benchmark_progress
from lethe.benchmark.results import collect
from lethe.benchmark.store import BenchmarkFolder
from tests.lethe.conftest import execute

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """Ends a process in the middle of its work."""


@dataclass
class CountedRuns:
    """The child runner, counting its runs; it is killed before run number `killed_at` of all."""

    killed_at: int | None = None
    runs: list[int] = field(default_factory=list)

    @contextmanager
    def __call__(self, place):
        with child_runs(place) as runs:
            yield _Counted(self, runs)


@dataclass
class _Counted:
    counts: CountedRuns
    inner: object
    backend: str = "counted"

    @property
    def stage(self):
        return self.inner.stage

    def run(self, index, *, seed, original):
        if len(self.counts.runs) == self.counts.killed_at:
            raise Killed
        self.counts.runs.append(index)
        return self.inner.run(index, seed=seed, original=original)


@pytest.fixture
def prepared_copy(finished, tmp_path):
    """Return a benchmark whose split is there, and no run."""
    path, out = finished
    shutil.copytree(out, tmp_path / "out")
    for folder in (tmp_path / "out").glob("cells/*/runs"):
        shutil.rmtree(folder)
    return path, tmp_path / "out"


def units(path, out):
    plan, folder = read_plan(path), BenchmarkFolder(out)
    return {method.label: folder.unit(plan.cells[0], method) for method in plan.methods}


def test_share_done_counts_what_lies_in_the_folder(finished, prepared_copy, tmp_path):
    shares = []
    for path, out in ((finished[0], tmp_path / "nothing"), prepared_copy, finished):
        share = ShareDone(read_plan(path), BenchmarkFolder(out), device="cpu")
        shares.append(share.now()[0])
    assert shares[0] == 0.0
    assert 0.0 < shares[1] < 1.0
    assert shares[2] == pytest.approx(1.0)


def test_finished_benchmark_has_its_runs_costs_and_reasons_and_computes_nothing_again(finished):
    path, out = finished
    outputs = stored_outputs(units(path, out)["original"])
    assert outputs.confidences.shape == (4, 20)
    assert {"forget_loss", "test_loss", "retain_loss"} <= set(outputs.captured)
    (cell,) = collect(read_plan(path), BenchmarkFolder(out))["cells"].values()
    values = cell["rows"]["finetune LR=0.05"]["values"]
    assert values["rte_work"]["value"] == 4.0  # epochs of training over one of finetuning
    assert values["rte_cpu"]["value"] > 0
    assert cell["rows"]["original"]["values"]["rte_work"]["value"] is None  # it passes nothing through the network
    broken = units(path, out)["broken"]
    failure = broken.read("failure")
    assert (broken.read("cost"), failure["run"]) == ({}, 0)
    assert all(part in failure["message"] for part in ("ValueError", "line 3"))
    counted = CountedRuns()
    execute(path, out, open_runs=counted)
    assert counted.runs == []
    progress = benchmark_progress(read_plan(path), BenchmarkFolder(out))
    assert (progress.cells[0].n_done, progress.cells[0].n_failed, progress.left_units) == (2, 1, 0)
    assert progress.left_s == 0.0
    assert progress.cells[0].measured_s > 0.0


def test_after_a_kill_only_the_rest_is_run_with_the_same_bits(finished, prepared_copy, monkeypatch):
    monkeypatch.setattr("lethe.benchmark.method_runs.PART_RUNS", 1)
    path, out = prepared_copy
    with pytest.raises(Killed):
        execute(path, out, open_runs=CountedRuns(killed_at=6))
    assert [unit.n_runs for unit in units(path, out).values()] == [4, 2, 0]
    counted = CountedRuns()
    execute(path, out, open_runs=counted)
    assert counted.runs == [2, 3, 0]  # the rest of finetune, and the one run of the broken method
    label = "finetune LR=0.05"
    in_one_process, apart = (stored_outputs(units(path, folder)[label]) for folder in (finished[1], out))
    assert (in_one_process.confidences == apart.confidences).all()


def test_a_unit_in_use_elsewhere_is_left_alone(prepared_copy, monkeypatch):
    path, out = prepared_copy
    plan, folder = read_plan(path), BenchmarkFolder(out)
    cell, method = plan.cells[0], plan.methods[0]
    monkeypatch.setattr("lethe.benchmark.execution.Execution._is_over", lambda self: len(waits) > 0)
    waits = []
    monkeypatch.setattr("lethe.benchmark.execution.time.sleep", waits.append)
    with folder.claimed(cell.key, method.key) as ours:
        assert ours
        execute(path, out)
    assert waits
    assert units(path, out)["original"].n_runs == 0
    assert units(path, out)["finetune LR=0.05"].n_runs == 4


def test_a_changed_method_is_noticed_and_run(finished, tmp_path):
    path, out = finished
    shutil.copytree(out, tmp_path / "out")
    for name in ("benchmark.toml", "tiny_competition.toml"):
        shutil.copy(path.parent / name, tmp_path)
    (tmp_path / "broken.py").write_text("def unlearning(net, retain, forget, val):\n    return net\n")
    said, counted = [], CountedRuns()
    execute(tmp_path / "benchmark.toml", tmp_path / "out", open_runs=counted, said=said)
    assert "new or different: methods broken" in said[0]
    assert counted.runs == [0, 1, 2, 3]


def test_a_cell_that_cannot_be_prepared_stops_no_other(finished, tmp_path):
    path, out = finished
    shutil.copytree(out, tmp_path / "out")
    for name in ("tiny_competition.toml", "broken.py"):
        shutil.copy(path.parent / name, tmp_path)
    impossible = (
        '[[cell]]\nname = "too large"\ncompetition = "tiny_competition.toml"\nsplits = { train_size = 9999 }\n[[cell]]'
    )
    (tmp_path / "benchmark.toml").write_text(path.read_text().replace("[[cell]]", impossible))
    with pytest.raises(UnfinishedBenchmark, match=r"too large: .*9999"):
        execute(tmp_path / "benchmark.toml", tmp_path / "out")
    found = benchmark_progress(read_plan(tmp_path / "benchmark.toml"), BenchmarkFolder(tmp_path / "out"))
    assert [cell.split for cell in found.cells] == ["failed", "prepared"]
    assert found.left_units == 3


def test_kept_weights_are_probed_beside_the_references(finished, tmp_path):
    path, _ = finished
    shutil.copy(path.parent / "tiny_competition.toml", tmp_path)
    kept = 'keep_weights = 2\nmethods = ["original", { method = "finetune", LR = 0.05 }]'
    text = path.read_text().replace('"accuracy_gap"', '"weight_distance", "relearn_time"')
    (tmp_path / "benchmark.toml").write_text(re.sub("methods = .*", kept, text).replace("n_models = 4", "n_models = 2"))
    execute(tmp_path / "benchmark.toml", tmp_path / "out")
    plan, folder = read_plan(tmp_path / "benchmark.toml"), BenchmarkFolder(tmp_path / "out")
    found = collect(plan, folder)["cells"]["tiny"]
    rows = found["rows"]
    distance = {name: row["values"]["weight_distance"]["value"] for name, row in rows.items()}
    assert distance["original"] == distance["original model"] > 0
    assert distance["finetune LR=0.05"] not in (distance["original"], distance["exact retraining"])
    assert rows["original"]["values"]["relearn_time"] == rows["original model"]["values"]["relearn_time"]
    unit = folder.unit(plan.cells[0], plan.methods[1])
    assert len(list(unit.folder.glob("weights-*.safetensors"))) == 2
