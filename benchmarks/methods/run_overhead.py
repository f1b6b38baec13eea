"""What a benchmark's run costs beyond the method: all runs in one process, or a child process for each.

    python -m benchmarks.methods.run_overhead

Processor time of this process and its children, which other programs hardly change. Each way runs FEW and MANY runs of
finetune, about 0.1 s each: the difference is of the runs alone, what is left of FEW is the start. `bare` is the same
loop of unlearning and inference in a process that does nothing else.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from lethe.benchmark.method_runs import child_runs, run_in_one_process, run_method
from lethe.benchmark.plan import Plan, read_plan
from lethe.benchmark.store import Unit
from lethe.competition.visibility import Visibility
from lethe.evaluation.evaluators import load_evaluator
from lethe.preparation.prepare import prepare_split
from lethe.runtime.data_loaders import load_data
from lethe.tuning.local_run import SplitRuns
from lethe.tuning.split_run import load_method, one_run

FEW, MANY = 4, 36
COMPETITION = """
slug = "overhead"
title = "Overhead"
opens_at = 2026-01-01T00:00:00Z
closes_at = 2026-02-01T00:00:00Z
n_models = 4
dataset = { name = "digits" }
network = { name = "mlp", options = { hidden = [64] } }
training = { epochs = 2, learning_rate = 0.05 }
splits = { train_size = 800, forget = { by = "random", fraction = 0.1 } }
"""
BENCHMARK = """
slug = "overhead"
n_models = {n_models}
methods = [{{ method = "finetune", EPOCHS = 10 }}]
metrics = ["score"]
[[cell]]
competition = "competition.toml"
"""


def main() -> None:
    """Prepare a small split and print a row for each way."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "competition.toml").write_text(COMPETITION)
        plans = {n_models: _plan(folder, n_models) for n_models in (FEW, MANY)}
        split_dir = folder / "split"
        prepare_split(plans[FEW].cells[0].competition, Visibility.PUBLIC, split_dir)
        ways: dict[str, Callable[[Plan, Unit], None]] = {
            "bare": lambda plan, _: _bare(plan, split_dir, folder),
            "one process": lambda plan, unit: _in_one_process(plan, unit, split_dir),
            "a child process each": lambda plan, unit: _each_apart(plan, unit, split_dir),
        }
        bare_s = 0.0
        for way, work in ways.items():
            few, many = (_cpu_s(partial(work, plan, Unit(folder / way / str(n)))) for n, plan in plans.items())
            run_s = (many - few) / (MANY - FEW)
            bare_s = bare_s or run_s
            over = f"{100 * (run_s / bare_s - 1):5.1f} % over bare"
            print(f"{way:22} {run_s:6.3f} s a run, {over}; {few - FEW * run_s:5.2f} s to start", flush=True)


def _plan(folder: Path, n_models: int) -> Plan:
    path = folder / f"benchmark-{n_models}.toml"
    path.write_text(BENCHMARK.format(n_models=n_models))
    return read_plan(path)


def _cpu_s(work: Callable[[], None]) -> float:
    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    before = used()
    work()
    return used() - before


def _bare(plan: Plan, split_dir: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    path = folder / "unlearning.py"
    path.write_text(plan.methods[0].files["unlearning.py"])
    unlearning, data, evaluator = load_method(path), load_data(split_dir / "visible"), load_evaluator(split_dir)
    for run in range(plan.file.n_models):
        one_run(unlearning, data, evaluator, seed=run, into=None, limit_s=None)


def _in_one_process(plan: Plan, unit: Unit, split_dir: Path) -> None:
    with SplitRuns(split_dir) as process:
        run_in_one_process(plan.cells[0], plan.methods[0], unit, process, until=None)


def _each_apart(plan: Plan, unit: Unit, split_dir: Path) -> None:
    run_method(plan.cells[0], plan.methods[0], unit, split_dir, open_runs=child_runs, until=None)


if __name__ == "__main__":
    main()
