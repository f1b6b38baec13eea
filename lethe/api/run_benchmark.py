"""`lethe.benchmark`: methods x cells, computed in a folder, or read from a report."""

import time
from pathlib import Path

from lethe.api.benchmark_result import BenchmarkResult
from lethe.benchmark.execution import Execution, Say
from lethe.benchmark.method_runs import child_runs
from lethe.benchmark.plan import read_plan
from lethe.benchmark.results import collect, read_results
from lethe.benchmark.store import BenchmarkFolder


def benchmark(
    source: str | Path,
    out: str | Path = "benchmark-results",
    *,
    max_hours: float | None = None,
    device: str = "cpu",
    say: Say | None = None,
) -> BenchmarkResult:
    """Return a benchmark's results. What is missing is computed first; what is there is not computed again.

    source: a benchmark file (.toml), or a report (.html, .json) that is only read. out: the folder of results.
    max_hours: stop after so many; call it again to go on. device: where models are trained. say: called with a line of
    text for each step, such as `print`.
    Raises InvalidBenchmarkFile naming what is wrong in the file, UnfinishedBenchmark naming what could not be computed.
    Methods run in child processes, without a sandbox: `lethe benchmark run` has one in a checkout. Needs the extra
    `torch`.
    """
    path = Path(source)
    if path.suffix != ".toml":
        return BenchmarkResult(read_results(path))
    plan, folder = read_plan(path), BenchmarkFolder(Path(out))
    until = None if max_hours is None else time.monotonic() + 3600 * max_hours
    Execution(plan, folder, child_runs, say or _silent, until=until, device=device).run()
    return BenchmarkResult(collect(plan, folder))


def _silent(text: str) -> None:
    """Say nothing."""
