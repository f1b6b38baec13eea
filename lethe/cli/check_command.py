"""`lethe check FILE`: the server's checks of a file, and runs on the public sample, on this machine."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
import typer
from rich.markup import escape

from lethe.cli.client_config import KIT_FILE
from lethe.cli.context import PublicCompetition, operator_packages
from lethe.cli.output import OverallProgress, console, notes, print_facts, print_json, print_notes
from lethe.cli.participation_commands import unpack_kit
from lethe.competition.estimates import MIN_FOR_A_SHARE
from lethe.competition.run_limits import compare_with_limit
from lethe.errors import InvalidInput
from lethe.runtime.error_classes import name_as_sent, place_beside

if TYPE_CHECKING:
    from lethe.evaluation.local_check import Checked, Kit, OnRun

FAILED = 3
LOG_LINES = 40
RUNS = {"notebook": "the whole notebook, once", "saves": "the notebook, in each run until its first model"}


def register_commands(app: typer.Typer) -> None:
    app.command()(check)


def check(
    server: PublicCompetition,
    file: Annotated[Path, typer.Argument(help="A .py, .ipynb or .zip file.", exists=True, dir_okay=False)],
    *,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            "-n",
            min=1,
            max=512,
            help="Number of runs; 4 or more for a score, 16 for a share of the oracle. Default: half of the kit's "
            "retrained models, at most 16.",
        ),
    ] = None,
    kit: Annotated[
        Path | None,
        typer.Option("--kit", help="The starter kit's folder. Default: the current one, else the kit is downloaded."),
    ] = None,
    sandbox: Annotated[
        str | None,
        typer.Option("--sandbox", help="bubblewrap, plain or none; else bubblewrap in a checkout, none elsewhere."),
    ] = None,
    show_log: Annotated[bool, typer.Option("--log", help="Show the runs' output.")] = False,
) -> None:
    """Check a file as the server does and run it on the public sample. Exit status 3: it failed.

    A checkout of Lethe has the server's sandbox. Elsewhere the file runs in its own child process, which limits
    its time and nothing else.
    """
    from lethe.evaluation.local_check import Kit

    found = Kit.at(_kit_folder(server, kit))
    wanted = found.default_runs if runs is None else runs
    with OverallProgress({"runs": 1.0}, quiet=server.as_json) as bar:

        def on_run(done: int) -> None:
            bar.show("runs", done / wanted, f"{done} of {wanted} runs on the public sample")

        checked = _check(file, found, sandbox, runs=wanted, on_run=on_run)
    facts = checked.as_json(found)
    if server.as_json:
        print_json(facts | {"log": checked.log})
    else:
        _print(checked, found, facts, show_log=show_log)
    if checked.failure is not None:
        raise typer.Exit(FAILED)


def _check(file: Path, kit: "Kit", sandbox: str | None, *, runs: int, on_run: "OnRun") -> "Checked":
    from lethe.evaluation.local_check import check_in_child

    has_sandbox = bool(operator_packages())
    if sandbox == "none" or (sandbox is None and not has_sandbox):
        return check_in_child(file, kit, runs=runs, on_run=on_run)
    if not has_sandbox:
        raise InvalidInput(f"--sandbox {sandbox} needs a checkout of Lethe; this installation has only: none")
    check_file = import_module("worker.evaluation.local_evaluation").check_file
    checked: Checked = check_file(file, kit, runs=runs, backend=sandbox or "bubblewrap", on_run=on_run)
    return checked


def _kit_folder(server: PublicCompetition, given: Path | None) -> Path:
    """Return the kit to use: given, the one around the current folder, or one fetched from the server."""
    if given is not None:
        return given
    here = Path.cwd()
    around = next((folder for folder in (here, *here.parents) if (folder / KIT_FILE).is_file()), None)
    if around is not None and server.named is None:
        return around
    folder = Path(platformdirs.user_cache_dir("lethe")) / "kits" / server.slug
    notes.print(f"Fetching the starter kit of {server.slug}.")
    unpack_kit(server.client.starter_kit(server.slug), folder)
    return folder


def _print(checked: "Checked", kit: "Kit", facts: dict[str, Any], *, show_log: bool) -> None:
    entry = checked.package.entry_point
    file = name_as_sent(entry.file, checked.filename)
    called = RUNS.get(entry.program or entry.mode, f"{entry.function} in {file}")
    if checked.failure is not None or show_log:
        text = checked.log if show_log else shortened(checked.log)
        console.print(text, markup=False, highlight=False, end="")
    rate, ends = _rate(facts["score_estimate"]), facts["score_interval"]
    print_facts(
        (
            ("runs", called),
            ("samples", None if entry.mode == "notebook" else entry.style),
            ("given by name", ", ".join(entry.keywords)),
            ("done", f"{facts['runs']} runs"),
            ("time of a run", _time(facts["run_s"], facts["run_limit_s"], of=facts["run_time_of"])),
            (f"of all {facts['n_models']} runs", _time(facts["all_runs_s"], facts["all_runs_limit_s"], of="clock")),
            ("memory", f"{facts['peak_memory_mib']:.0f} of {kit.limits.memory_mib} MiB"),
            ("accuracy on retain", _rate(facts["retain_accuracy"])),
            ("on validation", _rate(facts["validation_accuracy"])),
            ("score, an ESTIMATE", rate and rate + (f" (95 %: {ends[0]:.4f} to {ends[1]:.4f})" if ends else "")),
            ("the oracle, likewise", _rate(facts["oracle_estimate"])),
        )
    )
    for warning in facts["warnings"]:
        console.print(f"[bold yellow]warning:[/] {escape(warning)}", highlight=False)
    print_notes(facts["entry_point"]["notes"])
    if facts["score_estimate"] is not None:
        console.print(how_good(facts), style="dim", highlight=False)
    for line in checked.scores.explanation.lines() if checked.scores and checked.scores.explanation else ():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if checked.sandbox == "none":
        from lethe.evaluation.child_process import NO_SANDBOX

        console.print(NO_SANDBOX, style="dim")
    if checked.failure is not None:
        failure = facts["failure"]
        where = place_beside(failure["message"], file=failure["file"], line=failure["line"])
        console.print(f"[bold red]{failure['error_class']}[/]{where}: {failure['message']}", highlight=False)


def shortened(log: str) -> str:
    """Return a log of at most LOG_LINES lines: its end, where the traceback is, and how it begins."""
    lines = log.splitlines(keepends=True)
    if len(lines) <= LOG_LINES:
        return log
    beginning, end = LOG_LINES // 4, LOG_LINES - LOG_LINES // 4 - 1
    left_out = f"[... {len(lines) - beginning - end} lines left out; --log shows all]\n"
    return "".join([*lines[:beginning], left_out, *lines[-end:]])


def how_good(facts: dict[str, Any]) -> str:
    """Return how far the estimated score can be trusted."""
    n, oracle = facts["estimated_from"], facts["oracle_estimate"]
    start = f"Estimated from {n} models on the public sample"
    if facts["share_of_oracle"] is not None:
        low, high = facts["share_interval"]
        share = f"{facts['share_of_oracle']:.0%} ({low:.0%} to {high:.0%}) of what the oracle reaches with as many"
        return f"{start}: {share}. More models see smaller differences, so expect less of {facts['n_models']}."
    if oracle is not None and oracle <= 0:
        return f"{start}, which says little: the oracle itself reaches nothing there; try more --runs."
    if n < MIN_FOR_A_SHARE:
        return f"{start}: too few to compare entries, which needs {MIN_FOR_A_SHARE}; the hidden splits decide."
    return f"{start}: the kit has too few retrained models to say what the oracle reaches; the hidden splits decide."


def _time(seconds: float | None, limit_s: float, *, of: str) -> str | None:
    """Return a time beside its limit, of the processor or by the clock as the limit is, and whether it fits."""
    if seconds is None:
        return None
    return f"{compare_with_limit(seconds, limit_s, of)} (measured here)"


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"
