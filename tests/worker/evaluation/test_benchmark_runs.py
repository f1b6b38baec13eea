"""A benchmark's runs in the sandbox."""

from lethe.benchmark.method_runs import stored_outputs
from lethe.benchmark.plan import read_plan
from lethe.benchmark.store import BenchmarkFolder
from tests.lethe.benchmark.conftest import execute, write_files
from worker.evaluation.benchmark_runs import sandbox_runs


def test_the_sandbox_runs_a_benchmark(tmp_path):
    path = write_files(tmp_path)
    execute(path, tmp_path / "out", open_runs=sandbox_runs("plain"))
    plan, folder = read_plan(path), BenchmarkFolder(tmp_path / "out")
    original, finetune, broken = (folder.unit(plan.cells[0], method) for method in plan.methods)
    assert [original.n_runs, finetune.n_runs, broken.n_runs] == [4, 4, 0]
    assert (original.read("backend"), broken.read("failure")["class"]) == ({"sandbox": "plain"}, "exception")


def test_each_run_starts_from_its_own_original(tmp_path):
    path = write_files(tmp_path)
    path.write_text(path.read_text().replace("n_models = 4", "n_models = 4\nseeds = 4"))
    execute(path, tmp_path / "out", open_runs=sandbox_runs("plain"))
    plan, folder = read_plan(path), BenchmarkFolder(tmp_path / "out")
    outputs = stored_outputs(folder.unit(plan.cells[0], plan.methods[0]))
    assert len({row.tobytes() for row in outputs.confidences}) == 4
