"""A benchmark's runs in the sandbox."""

import pytest

from lethe.benchmark.execution import UnfinishedBenchmark
from lethe.benchmark.method_runs import stored_outputs
from lethe.benchmark.plan import read_plan
from lethe.benchmark.store import BenchmarkFolder
from lethe.errors import HostFault
from sandbox.launcher import Launcher, Sandbox
from tests.lethe.benchmark.conftest import execute, write_files
from worker.evaluation.benchmark_runs import sandbox_runs


def test_one_sandbox_runs_a_benchmark_of_one_split(tmp_path, monkeypatch):
    started = []
    start = Launcher.start
    monkeypatch.setattr(Launcher, "start", lambda self: started.append(1) or start(self))
    path = write_files(tmp_path)
    with sandbox_runs("plain") as open_runs:
        execute(path, tmp_path / "out", open_runs=open_runs)
    assert len(started) == 1
    plan, folder = read_plan(path), BenchmarkFolder(tmp_path / "out")
    original, finetune, broken = (folder.unit(plan.cells[0], method) for method in plan.methods)
    assert [original.n_runs, finetune.n_runs, broken.n_runs] == [4, 4, 0]
    assert (original.read("backend"), broken.read("failure")["class"]) == ({"sandbox": "plain"}, "exception")


def test_each_run_starts_from_its_own_original(tmp_path):
    path = write_files(tmp_path)
    path.write_text(path.read_text().replace("n_models = 4", "n_models = 4\nseeds = 4"))
    with sandbox_runs("plain") as open_runs:
        execute(path, tmp_path / "out", open_runs=open_runs)
    plan, folder = read_plan(path), BenchmarkFolder(tmp_path / "out")
    outputs = stored_outputs(folder.unit(plan.cells[0], plan.methods[0]))
    assert len({row.tobytes() for row in outputs.confidences}) == 4


def test_after_a_failure_of_the_sandbox_the_next_method_gets_a_new_one(tmp_path, monkeypatch):
    path = write_files(tmp_path)
    ended = []

    def end_once(self, request):
        if not ended:
            ended.append(self)
            self.close()
            raise HostFault("the sandbox is gone")
        return run(self, request)

    run = Sandbox.run
    monkeypatch.setattr(Sandbox, "run", end_once)
    with sandbox_runs("plain") as open_runs, pytest.raises(UnfinishedBenchmark, match="the sandbox is gone"):
        execute(path, tmp_path / "out", open_runs=open_runs)
    plan, folder = read_plan(path), BenchmarkFolder(tmp_path / "out")
    assert [folder.unit(plan.cells[0], method).n_runs for method in plan.methods] == [0, 4, 0]
