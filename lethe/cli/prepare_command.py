"""`lethe prepare`: a split from a competition file, on this machine and without a server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from lethe.cli.context import Output
from lethe.cli.output import console, notes, print_facts
from lethe.competition.visibility import Visibility

if TYPE_CHECKING:
    from lethe.competition.file import CompetitionFile
    from lethe.preparation.step_cache import OnProgress, PreparationProgress


def register_commands(app: typer.Typer) -> None:
    app.command()(prepare)


def prepare(
    output: Output,
    file: Annotated[Path, typer.Argument(help="A competition file (TOML).", exists=True, dir_okay=False)],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the split.", file_okay=False)],
    split: Annotated[Visibility, typer.Option("--split", help="Which of the two splits.")] = Visibility.PUBLIC,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Cuts the data where the file names no seed.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Prepare a split without a server: cut the data, train the original, retrained and oracle models.

    Called again it goes on where it stopped. Relative paths in the file are relative to it.
    """
    from lethe.competition.file import read_competition_file
    from lethe.competition.run_limits import RetrainingCost, limit_warnings
    from lethe.data.datasets.roots import datasets_beside
    from lethe.preparation.file_check import check_preparation
    from lethe.preparation.prepare import prepare_split

    competition = _with_seed(read_competition_file(file), seed)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with datasets_beside(file), Progress(*columns, console=notes, transient=True, disable=output.as_json) as bars:
        sizes = check_preparation(competition)[split]
        report = _reporter(bars, bars.add_task("reading the data"))
        manifest = prepare_split(competition, split, out, device=device, progress=report)
    fastest_s = manifest.fastest_retraining_s if device == "cpu" else None
    cost = RetrainingCost(manifest.retraining_time_s, fastest_s)
    warnings = limit_warnings(competition.limits, cost, n_models=competition.n_models)
    facts = {
        "split": str(out),
        "visibility": split.value,
        "n_models": manifest.n_models,
        "set_sizes": sizes,
        "retraining_time_s": manifest.retraining_time_s,
        "warnings": warnings,
    }
    output.answer(facts)
    print_facts(
        (
            ("split", f"{out} ({split})"),
            ("models", f"{manifest.n_models} retrained, as many of the oracle"),
            (f"{competition.task.example}s", ", ".join(f"{n} {name}" for name, n in sizes.items())),
            ("one retraining", f"{manifest.retraining_time_s:.2f} s"),
        )
    )
    for warning in warnings:
        notes.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    console.print(f"Next: lethe methods run METHOD --split {out}", style="dim", highlight=False)


def _with_seed(competition: "CompetitionFile", seed: int) -> "CompetitionFile":
    """Return the competition with a seed: a file that names none has another at each reading."""
    if "seed" in competition.splits.model_fields_set:
        return competition
    return competition.model_copy(update={"splits": competition.splits.model_copy(update={"seed": seed})})


def _reporter(bars: Progress, task: TaskID) -> "OnProgress":
    def report(progress: "PreparationProgress") -> None:
        if progress.message:
            notes.print(progress.message, highlight=False, markup=False)
        bars.update(task, description=progress.stage, completed=progress.done, total=progress.total)

    return report
