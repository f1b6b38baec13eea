"""A benchmark's runs in the sandbox."""

import pytest
import torch
from safetensors.torch import load, load_file

from lethe.benchmark.execution import UnfinishedBenchmark
from lethe.benchmark.method_runs import stored_outputs
from lethe.benchmark.plan import read_plan
from lethe.benchmark.store import BenchmarkFolder
from lethe.errors import HostFault
from sandbox.launcher import Launcher, Sandbox
from tests.lethe.conftest import execute, write_files
from worker.evaluation.benchmark_runs import sandbox_runs


def test_methods_share_a_sandbox_until_it_fails_and_then_a_new_one(tmp_path, monkeypatch):
    """The first is lost at the second method's first run; what it left undone is made up for in the second."""
    path = write_files(tmp_path)
    path.write_text(path.read_text().replace("n_models = 4", "n_models = 4\nseeds = 4"))
    plan, folder = read_plan(path), BenchmarkFolder(tmp_path / "out")
    original, finetune, broken = units = [folder.unit(plan.cells[0], method) for method in plan.methods]
    started, asked, originals = [], [], []

    def end_once(self, request):
        asked.append(self)
        if len(asked) == original.n_runs + 1 == 5:
            self.close()
            raise HostFault("the sandbox is gone")
        result = run(self, request)
        if len(asked) <= 4:  # of the method that gives the original back
            originals.append((load_file(request.original), load(result.weights)))
        return result

    start, run = Launcher.start, Sandbox.run
    monkeypatch.setattr(Launcher, "start", lambda self: started.append(1) or start(self))
    monkeypatch.setattr(Sandbox, "run", end_once)
    with sandbox_runs("plain") as open_runs:
        with pytest.raises(UnfinishedBenchmark, match="the sandbox is gone"):
            execute(path, tmp_path / "out", open_runs=open_runs)
        assert [unit.n_runs for unit in units] == [4, 0, 0]
        assert broken.read("failure")["class"] == "exception"
        execute(path, tmp_path / "out", open_runs=open_runs)
    assert [unit.n_runs for unit in units] == [4, 4, 0]
    assert len(started) == len(set(asked)) == 2
    assert original.read("backend") == finetune.read("backend") == {"sandbox": "plain"}
    assert len({row.tobytes() for row in stored_outputs(original).confidences}) == len(originals) == 4
    assert all(torch.equal(value, given[name]) for own, given in originals for name, value in own.items())
