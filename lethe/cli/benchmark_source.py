"""What the commands of a benchmark read, the processes that they start, and `lethe benchmark meta`."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lethe
from lethe.cli.context import connected, operator_packages
from lethe.cli.output import console, notes
from lethe.errors import AppError, InvalidInput

if TYPE_CHECKING:
    from lethe.benchmark.method_runs import OpenRuns


@contextmanager
def further_processes(number: int, file: Path, options: Mapping[str, object]) -> Iterator[None]:
    """Run the same command in further processes. They end with this one if it is ended, and else when all is done."""
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    command = [sys.executable, "-P", "-m", "lethe.cli.main", "benchmark", "run", str(file), "--no-progress", *words]
    paths = [str(Path(lethe.__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    helpers: list[subprocess.Popen[bytes]] = []
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # through every `finally`
    try:
        helpers += (subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) for _ in range(number))
        try:
            yield
        except AppError:  # what this process could not do, another one may be at
            _wait_for(helpers)
            raise
        _wait_for(helpers)
    finally:
        for helper in helpers:
            helper.terminate()
            helper.wait()
        signal.signal(signal.SIGTERM, before)


def _wait_for(helpers: Sequence[subprocess.Popen[bytes]]) -> None:
    for helper in helpers:
        if status := helper.wait():
            notes.print(f"a further process ended with status {status}", markup=False, highlight=False)


@contextmanager
def opened_runs(sandbox: str | None) -> "Iterator[OpenRuns]":
    """Give what opens a method's runs: in child processes, or in a sandbox of this checkout."""
    from lethe.benchmark.method_runs import child_runs

    has_sandbox = "worker" in operator_packages()
    if sandbox == "none" or (sandbox is None and not has_sandbox):
        yield child_runs
        return
    if not has_sandbox:
        raise InvalidInput(f"--sandbox {sandbox} needs a checkout of Lethe; this installation has only: none")
    with import_module("worker.evaluation.benchmark_runs").sandbox_runs(sandbox or "bubblewrap") as open_runs:
        yield open_runs


ON_SERVER = "server:"


def read_source(given: str, out: Path) -> dict[str, Any]:
    """Return results: of a server, a report, a benchmark file's folder, or of the only benchmark in a folder."""
    if given.startswith(ON_SERVER):
        from lethe.benchmark.progress import get_results

        with connected() as client:
            return get_results(client, given.removeprefix(ON_SERVER))
    source = Path(given)
    if not source.exists():
        raise InvalidInput(f"{source} is not there: name a benchmark file, a folder, a report, or server:SLUG")
    from lethe.benchmark.plan import read_plan
    from lethe.benchmark.results import collect, read_cells, read_results, result_files
    from lethe.benchmark.store import require_folder

    if source.is_dir() and not (source / "benchmarks").is_dir() and result_files(source):
        return read_cells(source)
    if source.is_dir():
        return collect(read_plan(_only_benchmark(source)), require_folder(source))
    if source.suffix == ".toml":
        return collect(read_plan(source), require_folder(out))
    return read_results(source)


def _only_benchmark(folder: Path) -> Path:
    from lethe.benchmark.store import read_object, require_folder

    known = sorted((require_folder(folder).root / "benchmarks").glob("*.json"))
    if len(known) != 1:
        names = ", ".join(path.stem for path in known)
        raise InvalidInput(f"{folder} holds several benchmarks ({names}): name the file and give --out {folder}")
    path = Path(read_object(known[0])["file"])
    if not path.is_file():
        raise InvalidInput(f"the benchmark file {path} is not there any more: name a copy and give --out {folder}")
    return path


def meta(
    file: Annotated[Path, typer.Argument(help="A competition file of images (TOML).", exists=True, dir_okay=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the split and the results.")],
    models: Annotated[int, typer.Option(help="Models of each set, a multiple of 8.", min=32)] = 64,
    method: Annotated[str, typer.Option(help="The method whose runs are quantised and relearned.")] = "msg",
    leave_out: Annotated[list[str] | None, typer.Option(help="A metric not to judge; may be repeated.")] = None,
) -> None:
    """Judge every metric on models whose knowledge is known: originals and retrained ones.

    Writes meta.json, meta.md (a table) and meta.svg below the folder. A split that is there already is used.
    """
    import torch

    from lethe.benchmark.meta_criteria import DRAWS, as_json, judge, judged_metrics
    from lethe.benchmark.meta_models import make_model_sets
    from lethe.benchmark.store import write_whole
    from lethe.competition.file import read_competition_file
    from lethe.data.datasets.registry import datasets_beside
    from lethe.device import one_thread
    from lethe.metrics.core.registry import metric
    from lethe.reports.published_page import meta_figure, meta_table

    started, processor = time.perf_counter(), time.process_time()

    def say(text: str) -> None:
        notes.print(f"{time.perf_counter() - started:.0f} s: {text}", markup=False, highlight=False)

    left_out = [metric(name).id for name in leave_out or ()]
    competition = read_competition_file(file)
    entries = [entry for entry in judged_metrics() if entry.id not in left_out]
    with datasets_beside(file), one_thread(torch.device("cpu")):
        made = make_model_sets(competition, out / "split", n_models=models, method=method, progress=say)
        found = judge(made, entries=entries, progress=say)
    conditions = {
        "competition": competition.slug,
        "n_models": models,
        "method": method,
        "draws": DRAWS,
        "recipes": list(made.recipes),
        "left_out": left_out,
        "processor_s": round(time.process_time() - processor),
        "wall_s": round(time.perf_counter() - started),
    }
    document = as_json(found, conditions)
    write_whole(out / "meta.json", (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    write_whole(out / "meta.md", meta_table(document).encode())
    meta_figure(document).savefig(out / "meta.svg")
    for name in ("meta.json", "meta.md", "meta.svg"):
        console.print(str(out / name), markup=False, highlight=False, soft_wrap=True)
