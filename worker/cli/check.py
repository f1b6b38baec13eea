"""`lethe check FILE`: what the server would say to a file, and how it does on the public sample, on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from server.cli.connection import (
    Competition,
    Json,
    Url,
    competition_of,
    connected,
    console,
    notes,
    print_facts,
    print_json,
)
from server.cli.kit_commands import unpack_kit
from server.cli.settings_file import KIT_FILE

if TYPE_CHECKING:
    from worker.local_check import Checked, Kit

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
FAILED = 3


@app.callback()
def _group() -> None:
    """Check submissions on this machine."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A .py, .ipynb or .zip file.", exists=True, dir_okay=False)],
    *,
    runs: Annotated[
        int, typer.Option("--runs", "-n", min=1, max=512, help="How many runs; 3 or more for a score.")
    ] = 4,
    kit: Annotated[
        Path | None, typer.Option("--kit", help="A starter kit's folder; else this one, else fetched.")
    ] = None,
    backend: Annotated[
        str, typer.Option("--sandbox", help="bubblewrap, or plain for no boundary at all.")
    ] = "bubblewrap",
    show_log: Annotated[bool, typer.Option("--log", help="Show what the runs printed.")] = False,
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Check a file as the server does and run it on the public sample in the same sandbox. Exit status 3: it failed."""
    from worker.local_check import Kit, check_file

    found = Kit.at(_kit_folder(kit, competition, url))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=notes, transient=True, disable=as_json) as bars:
        task = bars.add_task("runs on the public sample", total=runs)
        checked = check_file(
            file, found, runs=runs, backend=backend, on_run=lambda done: bars.update(task, completed=done)
        )
    facts = checked.as_json(found)
    if as_json:
        print_json(facts | {"log": checked.log})
    else:
        _print(checked, found, facts, show_log=show_log)
    if checked.verdict is not None:
        raise typer.Exit(FAILED)


def _kit_folder(given: Path | None, competition: str | None, url: str | None) -> Path:
    """Return the kit to use: given, the one around the current folder, or one fetched from the server."""
    if given is not None:
        return given
    here = Path.cwd()
    around = next((folder for folder in (here, *here.parents) if (folder / KIT_FILE).is_file()), None)
    if around is not None and competition is None:
        return around
    with connected(url, anonymous=True) as client:
        slug = competition_of(client, competition)
        folder = Path(platformdirs.user_cache_dir("lethe")) / "kits" / slug
        notes.print(f"Fetching the starter kit of {slug}.")
        unpack_kit(client.starter_kit(slug), folder)
    return folder


def _print(checked: "Checked", kit: "Kit", facts: dict[str, Any], *, show_log: bool) -> None:
    entry = checked.package.entry_point
    called = "the whole notebook, once" if entry.mode == "notebook" else f"{entry.function} in {entry.file}"
    if checked.verdict is not None or show_log:
        console.print(checked.log, markup=False, highlight=False, end="")
    print_facts(
        (
            ("runs", called),
            ("samples", None if entry.mode == "notebook" else entry.style),
            ("given by name", ", ".join(entry.keywords)),
            ("done", f"{facts['runs']} runs"),
            ("time of a run", _time(facts["run_s"], facts["run_limit_s"])),
            (f"of all {facts['n_models']} runs", _time(facts["all_runs_s"], facts["all_runs_limit_s"])),
            ("memory", f"{facts['peak_memory_mib']:.0f} of {kit.limits.memory_mib} MiB"),
            ("accuracy on retain", _rate(facts["retain_accuracy"])),
            ("on validation", _rate(facts["validation_accuracy"])),
            ("score, an ESTIMATE", _rate(facts["score_estimate"])),
        )
    )
    if facts["score_estimate"] is not None:
        console.print("Estimated from few models on the public sample; the hidden splits decide.", style="dim")
    if checked.verdict is not None:
        failure = facts["failure"]
        where = f" ({failure['file']}, line {failure['line']})" if failure["line"] else ""
        console.print(f"[bold red]{failure['error_class']}[/]{where}: {failure['message']}", highlight=False)


def _time(seconds: float | None, limit_s: float) -> str | None:
    if seconds is None:
        return None
    return f"{seconds:.2f} s on this machine; {limit_s:g} s are allowed on the server"


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"
