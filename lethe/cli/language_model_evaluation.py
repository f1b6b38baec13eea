"""`lethe evaluate --hf DIR`: language models in Hugging Face folders, on local data."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lethe.cli.json_output import write_json

if TYPE_CHECKING:
    from lethe.huggingface.evaluation import Evaluation, Settings, Task


def evaluate_language_models(
    folders: list[Path],
    *,
    task: str,
    data: Path,
    retain: Path | None,
    retain_logs: Path | None,
    settings: dict[str, str | None],
    as_json: bool,
    file: Path | None,
    logs: Path | None,
) -> None:
    """Evaluate the folders, print a table or JSON, and write what was asked for.

    file: for the JSON, in place of standard output. logs: for the first folder's results in open-unlearning's form; its
    summary goes beside it.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from lethe.huggingface.evaluation import Settings, read_task

    chosen = Settings(**{name: value for name, value in settings.items() if value is not None})
    found = _evaluate(folders, read_task(task, data, chosen), chosen, retain=retain, retain_logs=retain_logs)
    if as_json:
        write_json(found.as_json(), file)
    if not as_json or file is not None:
        _print_table(found)
    if logs is not None:
        _write_logs(found, logs)


def _evaluate(
    folders: list[Path], task: "Task", settings: "Settings", *, retain: Path | None, retain_logs: Path | None
) -> "Evaluation":
    from transformers.utils import logging

    from lethe.huggingface.evaluation import evaluate_folders

    quiet: Any = logging  # untyped there
    quiet.disable_progress_bar()
    quiet.set_verbosity_error()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        n_models = len(folders) + (retain is not None)
        bar = progress.add_task("sequences", total=task.n_sequences * n_models)
        return evaluate_folders(
            folders,
            task,
            settings=settings,
            retain=retain,
            retain_logs=retain_logs,
            on_progress=lambda n: progress.advance(bar, n),
        )


def _print_table(found: "Evaluation") -> None:
    console = Console()
    retain = found.reference
    table = Table("metric", *(Path(folder).name for folder in found.folders), *(["retain model"] if retain else []))
    for name in found.results[0].metrics:
        values = [_number(result.metrics[name].value) for result in found.results]
        table.add_row(name, *values, *([_number(retain.value(name))] if retain else []))
    console.print(table)
    notes = {
        f"{name}: not computed: {metric.reason}"
        for name, metric in found.results[0].metrics.items()
        if metric.value is None
    }
    notes |= {
        f"{Path(folder).name}: {note}"
        for folder, result in zip(found.folders, found.results, strict=True)
        for note in result.notes
    }
    for note in sorted(notes):
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def _write_logs(found: "Evaluation", path: Path) -> None:
    from lethe.huggingface.reference import as_logs, as_summary

    result = found.results[0]
    write_json(as_logs(result), path)
    summary = path.with_name(path.name.replace("EVAL", "SUMMARY") if "EVAL" in path.name else f"SUMMARY_{path.name}")
    write_json(as_summary(result), summary)


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
