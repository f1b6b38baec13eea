"""`lethe benchmark`: methods x cells, computed once, as tables and a report."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lethe.cli.benchmark_source import further_processes, meta, opened_runs, read_source
from lethe.cli.context import Commands, Output, Url, connected, import_from_checkout
from lethe.cli.output import OverallProgress, console, notes, print_facts, print_table
from lethe.errors import InvalidInput

if TYPE_CHECKING:
    from lethe.benchmark.plan import Plan

app = Commands(name="benchmark", help="Methods x data sets x networks, computed once, as tables.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="A benchmark file (TOML).", metavar="FILE", exists=True, dir_okay=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder of results; several benchmarks may share it.")]
Device = Annotated[str, typer.Option(help="Where models are trained when a cell is prepared: cpu or cuda.")]
Server = Annotated[
    bool, typer.Option("--server", help="On a server: its workers compute, as hidden practice competitions.")
]
Source = Annotated[
    str,
    typer.Argument(help="A benchmark file, a folder of results, a report (.html), or server:SLUG.", metavar="SOURCE"),
]
OUT = Path("benchmark-results")
FAILED = 3
STATUS_COLUMNS = ("cell", "split", "done#", "failed#", "runs#", "of#")


app.command()(meta)


def register_commands(parent: typer.Typer) -> None:
    parent.add_typer(app)


@app.command()
def validate(output: Output, file: File, device: Device = "cpu") -> None:
    """Check a benchmark file and estimate what it costs."""
    from lethe.benchmark.estimate import estimate
    from lethe.benchmark.plan import read_plan

    plan = read_plan(file)
    found = estimate(plan, device=device)
    output.answer(found.as_json())
    print_facts((("benchmark", plan.file.slug), ("cells", len(plan.cells)), ("methods", len(plan.methods))))
    columns = ("cell", "models#", "runs#", "training#", "unlearning, at most#", "disk#")
    print_table("", columns, (row.as_text() for row in found.cells), empty="There is no cell.")
    for row in found.cells:
        if row.note:
            console.print(f"{row.name}: {row.note}", markup=False, highlight=False, soft_wrap=True)
    print_facts((("runs", found.runs), (f"{device} time", found.time_text), ("disk", found.disk_text)))


@app.command()
def run(  # noqa: PLR0917  typer makes its options from these parameters
    file: File,
    out: Out = OUT,
    max_hours: Annotated[float | None, typer.Option(help="Stop after so many hours; run it again to go on.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many work side by side; one for each idle core.")] = 1,
    sandbox: Annotated[
        str | None,
        typer.Option(
            "--sandbox",
            help="bubblewrap, plain or none: for every method. Else only for your own files, and in a checkout.",
        ),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed (F).")] = False,
    device: Device = "cpu",
    server: Server = False,
    url: Url = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="With --server: stay until it has ended.")] = True,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show how far it is.")] = True,
) -> None:
    """Compute what is missing. Several of these may work in one folder; each may be ended at any time."""
    if server:
        if processes > 1:
            raise InvalidInput("--processes is for this machine: on a server, its workers share the work by themselves")
        _run_on_server(file, url, max_hours=max_hours, retry=retry_failed, wait=wait)
        return
    from lethe.benchmark.execution import Execution
    from lethe.benchmark.plan import read_plan
    from lethe.benchmark.progress import ShareDone
    from lethe.benchmark.store import BenchmarkFolder

    plan, folder = read_plan(file), BenchmarkFolder(out)
    if retry_failed:
        from lethe.benchmark.store import settled_methods

        for cell in plan.cells:
            for method in settled_methods(plan, folder, cell):
                folder.unit(cell, method).forget_failure()
    until = None if max_hours is None else time.monotonic() + 3600 * max_hours
    options = {"--out": out, "--max-hours": max_hours, "--sandbox": sandbox, "--device": device}
    share = ShareDone(plan, folder, device=device)
    with (
        opened_runs(sandbox) as open_runs,
        further_processes(processes - 1, file, options),
        OverallProgress({"benchmark": 1.0}, look=share.now, quiet=not progress),
    ):
        Execution(
            plan,
            folder,
            open_runs,
            _say,
            until=until,
            device=device,
            each_apart=sandbox not in {None, "none"},
            on_preparation=share.note_preparation,
        ).run()
    _print_status(plan, out)


def _run_on_server(file: Path, url: str | None, *, max_hours: float | None, retry: bool, wait: bool) -> None:
    from lethe.benchmark import progress
    from lethe.benchmark.plan import read_plan

    plan = read_plan(file)
    with connected(url) as client:
        found = progress.put_benchmark(client, plan, max_hours=max_hours, retry=retry)
        if found["changed"]:
            _say(found["changed"])
        if wait:
            found = progress.wait(client, plan.file.slug, _say)
        _print_server_status(found)


app.command(name="resume", help="Go on with a benchmark: the same as `run`, which computes nothing twice.")(run)


@app.command()
def status(output: Output, file: File, out: Out = OUT, server: Server = False, url: Url = None) -> None:
    """Show what is done, what failed and how long the rest takes, about."""
    from lethe.benchmark.plan import read_plan
    from lethe.benchmark.progress import get_status

    plan = read_plan(file)
    if not server:
        _print_status(plan, out, output)
        return
    with connected(url) as client:
        _print_server_status(get_status(client, plan.file.slug), output)


def _print_server_status(found: dict[str, Any], output: Output | None = None) -> None:
    from lethe.benchmark.progress import left_text

    if output:
        output.answer(found)
    columns = ("name", "split", "n_done", "n_failed", "n_runs", "wanted_runs")
    rows = [[str(cell[name]) for name in columns] for cell in found["progress"]]
    _print_progress(rows, found["failures"], left_text(found["left"], found["left_s"]))


def _print_status(plan: "Plan", out: Path, output: Output | None = None) -> None:
    from lethe.benchmark.progress import benchmark_progress
    from lethe.benchmark.store import BenchmarkFolder

    found = benchmark_progress(plan, BenchmarkFolder(out))
    if output:
        output.answer(found.as_json())
    _print_progress((row.as_text() for row in found.cells), found.failures, found.left_text)


def _print_progress(rows: Iterable[Sequence[str]], failures: Iterable[str], left: str) -> None:
    print_table("", STATUS_COLUMNS, rows, empty="There is no cell.")
    for reason in failures:
        console.print(reason, markup=False, highlight=False, soft_wrap=True)
    print_facts((("left", left),))


def _say(text: str) -> None:
    notes.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def table(  # noqa: PLR0917  typer makes its options from these parameters
    source: Source,
    out: Out = OUT,
    groups: Annotated[
        bool, typer.Option("--groups", help="md: only ranking groups and Pareto counts over cells.")
    ] = False,
    table_format: Annotated[str, typer.Option("--format", "-f", help="md, csv, latex, json or parquet.")] = "md",
    wide: Annotated[
        str | None, typer.Option("--wide", help="csv: one cell, a row per method and a column per metric.")
    ] = None,
    all_digits: Annotated[bool, typer.Option("--all-digits", help="latex: every digit of a number.")] = False,
    file: Annotated[Path | None, typer.Option("--file", help="Write it there; Parquet needs one.")] = None,
) -> None:
    """Print the tables of what is there: a dash for what is missing, F for what failed.

    md: for reading. csv and parquet: one long table, all digits. json: everything, as `table` reads it again. latex:
    a table per cell for the package booktabs, with intervals, the best in bold.
    """
    from lethe.api import benchmark_result
    from lethe.reports.benchmark_tables import benchmark_tables
    from lethe.reports.table import json_text, written

    options = (("--groups", groups, "md"), ("--wide", wide is not None, "csv"), ("--all-digits", all_digits, "latex"))
    for option, given, wanted in options:
        if given and table_format != wanted:
            raise InvalidInput(f"{option} is for --format {wanted}, not {table_format}")
    writers: dict[str, Callable[[dict[str, Any]], str]] = {
        "md": lambda content: "".join(f"{each.markdown()}\n" for each in benchmark_tables(content, groups=groups)),
        "csv": lambda content: (
            benchmark_result.csv_text(content) if wide is None else benchmark_result.wide_csv_text(content, wide)
        ),
        "latex": lambda content: benchmark_result.latex_text(content, all_digits=all_digits),
        "json": json_text,
    }
    if table_format == "parquet":
        if file is None:
            raise InvalidInput("--format parquet is not text: name a file with --file")
        benchmark_result.write_parquet(read_source(source, out), file)
        return
    if table_format not in writers:
        raise InvalidInput(f"there is no format {table_format!r}; there are {', '.join((*writers, 'parquet'))}")
    text = written(writers[table_format](read_source(source, out)), file)
    if file is None:
        typer.echo(text, nl=False)


@app.command()
def tuned(source: Source, out: Out = OUT) -> None:
    """Print the constants that the section `tune` chose, as entries of a benchmark file, cell by cell."""
    from lethe.benchmark.results import tuned_entries

    for line in tuned_entries(read_source(source, out)):
        typer.echo(line)


@app.command()
def plot(
    source: Source,
    kind: Annotated[str, typer.Argument(help="pareto, scatter, forgetting, hardness, utility, ranks or tuned.")],
    picture: Annotated[Path, typer.Argument(help="The file to write; .svg, .png or .pdf.", dir_okay=False)],
    out: Out = OUT,
) -> None:
    """Draw a figure, a picture per cell."""
    from lethe.reports.benchmark_figures import draw, save

    save(draw(read_source(source, out), kind), picture)


@app.command()
def report(
    source: Source,
    out: Out = OUT,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            help="Where to write it; else SLUG.html in the folder. X.md: for publishing. X.json, X.json.gz: results.",
        ),
    ] = None,
    cells: Annotated[
        Path | None, typer.Option("--cells", help="A folder: write a JSON file of each finished cell, no page.")
    ] = None,
) -> None:
    """Write one HTML file with tables, figures, settings, versions and hashes, or the results as JSON.

    A folder with README.md (`--page README.md`) and results.json.gz is what `check` takes.
    """
    from lethe.benchmark.results import write_finished_cells
    from lethe.benchmark.store import write_whole
    from lethe.reports.published_page import report_file

    content = read_source(source, out)
    if cells is not None:
        for written in write_finished_cells(content, cells):
            console.print(str(written), markup=False, highlight=False, soft_wrap=True)
        return
    path = page or (Path(source) if Path(source).is_dir() else out) / f"{content['slug']}.html"
    write_whole(path, report_file(content, path.name))
    console.print(str(path), markup=False, highlight=False, soft_wrap=True)


@app.command()
def check(output: Output, source: Source, out: Out = OUT) -> None:
    """Compare a published page with its results, or results with orderings that the papers report.

    A folder of results with a README.md: the page is made again; exit status 1 where a number or sentence differs.
    All else, in a checkout: exit status 3 where a hard ordering fails.
    """
    content, page = read_source(source, out), Path(source) / "README.md"
    if not page.is_file():
        _check_orderings(content, output)
        return
    from lethe.reports.published_page import page_differences
    from lethe.text_files import read_text

    found = page_differences(read_text(page), content)
    output.answer(found, exit_status=int(bool(found)))
    for line in found or [f"{page} is what its results give"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if found:
        raise InvalidInput(f"{page} is not what its results give: {len(found)} lines differ")


def _check_orderings(content: dict[str, Any], output: Output) -> None:
    from dataclasses import asdict

    papers = import_from_checkout("benchmarks.papers.orderings", purpose="lethe benchmark check")
    found = papers.check_orderings(content)
    ended = FAILED if any(each.hard and each.holds is False for each in found) else 0
    output.answer([asdict(each) for each in found], exit_status=ended)
    words = {True: "holds", False: "DOES NOT HOLD", None: "not decided"}
    for each in found:
        kind = "hard" if each.hard else "soft"
        line = f"{each.id} {kind:4} {words[each.holds]:13} {each.cell}: {each.statement} ({each.numbers})"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(ended)
