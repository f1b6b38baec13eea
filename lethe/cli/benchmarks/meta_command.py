"""`lethe benchmark meta`: which metrics can be believed."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.output import console, notes


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
    from lethe.device.precision import one_thread
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
