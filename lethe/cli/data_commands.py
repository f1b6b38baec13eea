"""Data on this machine: `lethe data` shows and makes it, `lethe prepare` makes splits of it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from lethe.cli.context import Commands, Output, value_of
from lethe.cli.output import console, notes, print_facts, print_table
from lethe.competition.visibility import Visibility
from lethe.data.catalogue import BY_NAME, SOURCES, DataSource, check_file, find_folder, stored_path
from lethe.errors import InvalidInput
from lethe.huggingface.task_catalogue import FIELD_TYPES, TASKS, LanguageTask, TaskFile, holds_task, read_files

if TYPE_CHECKING:
    from lethe.preparation.step_cache import OnProgress, PreparationProgress


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
    from lethe.data.datasets.registry import datasets_beside
    from lethe.preparation.file_check import check_preparation
    from lethe.preparation.prepare import prepare_split

    competition = read_competition_file(file)
    if "seed" not in competition.splits.model_fields_set:  # else it has another at each reading
        splits = competition.splits.model_copy(update={"seed": seed})
        competition = competition.model_copy(update={"splits": splits})
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with datasets_beside(file), Progress(*columns, console=notes, transient=True, disable=output.as_json) as bars:
        sizes = check_preparation(competition)[split]
        report = _reporter(bars, bars.add_task("reading the data"))
        manifest = prepare_split(competition, split, out, device=device, progress=report)
    fastest_s = manifest.timing.least_cpu_s if device == "cpu" else None
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


def _reporter(bars: Progress, task: TaskID) -> "OnProgress":
    def report(progress: "PreparationProgress") -> None:
        if progress.message:
            notes.print(progress.message, highlight=False, markup=False)
        bars.update(task, description=progress.stage, completed=progress.done, total=progress.total)

    return report


app = Commands(name="data", help="Data sets: found where, from where, intact or not.", no_args_is_help=True)
Roots = Annotated[
    list[Path] | None, typer.Option("--root", "-r", help="A folder to look in; can be repeated. Default: data")
]
Name = Annotated[str, typer.Argument(help="A data set of `lethe data list`.", metavar="NAME")]
DEFAULT_ROOTS = (Path("data"), Path("/usr/share/datasets"))
FAILED = 3


def register_commands(parent: typer.Typer) -> None:
    parent.add_typer(app)
    parent.command()(prepare)


@app.command("list")
def list_data(output: Output, root: Roots = None) -> None:
    """List the data sets that adapters read, and where each is found."""
    roots = root or DEFAULT_ROOTS
    found = [(each, str(find_folder(each, roots) or "") if each.files else "built in") for each in SOURCES]
    if output.as_json:
        tasks = [_task_json(task) | {"found": _task_found(task, roots)} for task in TASKS.values()]
        output.answer([*(asdict(source) | {"found": where} for source, where in found), *tasks])
    columns = ("name", "images#", "classes#", "download#", "found", "licence")
    rows = (
        (source.name, str(source.images), str(source.classes), _size(source), where or "-", source.licence)
        for source, where in found
    )
    print_table("", columns, rows, empty="There is none.")
    texts = ((task.name, task.title, _task_found(task, roots) or "-", task.data) for task in TASKS.values())
    print_table("Language models: `lethe evaluate --hf`", ("task", "about", "found", "published as"), texts, empty="")


@app.command()
def show(output: Output, name: Name) -> None:
    """Show one data set: size, licence, where to get it, where to put it, hashes; of a task its files and fields."""
    if name in TASKS:
        _show_task(output, TASKS[name])
        return
    source = _source(name)
    output.answer(asdict(source))
    facts = [("name", source.name), ("title", source.title), ("images", source.images), ("classes", source.classes)]
    facts += [("shape", source.shape), ("download", _size(source)), ("licence", source.licence)]
    facts += [("from", url) for url in source.urls] + [("package", package) for package in source.packages]
    facts += [("put below a root", folder) for folder in source.folders if source.files]
    print_facts([*facts, ("note", source.notes)])
    rows = ((file.path, file.sha256 or file.md5 or "-") for file in source.files)
    print_table("", ("file, plain or .gz", "sha256 or md5, unpacked"), rows, empty="It needs no file.")


@app.command()
def check(
    name: Name,
    root: Roots = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="A further option of the adapter: KEY=VALUE, as JSON.")
    ] = None,
) -> None:
    """Check a data set's files and open it. Exit status 3: a file is missing or is not what its makers published.

    The files of a language task are read, and their rows counted.
    """
    from lethe.competition.file import Dataset
    from lethe.data.datasets.registry import open_dataset

    if name in TASKS:
        task = TASKS[name]
        for file in task.files:
            read = read_files(task, (root or DEFAULT_ROOTS)[0], file)
            rows = (
                ", ".join(f"{path.name}: {n} rows" for path, n in read) or f"missing: without it no {file.needed_for}"
            )
            console.print(f"{file.path}: {rows}", markup=False, highlight=False, soft_wrap=True)
        return
    source = _source(name)
    options = _options(option or [])
    if source.files:
        folder = find_folder(source, root or DEFAULT_ROOTS) or (root or DEFAULT_ROOTS)[0]
        if not _check_files(source, folder):
            raise typer.Exit(FAILED)
        options = {"root": str(folder)} | options
    dataset = open_dataset(Dataset(name=source.name, options=options))
    persons = len(set(dataset.persons.tolist()))
    tests = "none set aside" if dataset.is_test is None else str(int(dataset.is_test.sum()))
    print_facts((
        ("images", len(dataset)), ("shape", " x ".join(map(str, dataset.input_shape))), ("classes", dataset.n_classes),
        ("persons", "not known" if persons == len(dataset) else persons), ("test images", tests),
    ))  # fmt: skip


def _check_files(source: DataSource, folder: Path) -> bool:
    """Print what each file is, and return whether all are right."""
    problems = {file.path: check_file(folder, file) for file in source.files}
    for file in source.files:
        known = "as published" if file.sha256 or file.md5 else "there; its makers publish no hash"
        text = problems[file.path] or known
        where = stored_path(folder, file) or folder / file.path
        console.print(f"{where}: {text}", markup=False, highlight=False, soft_wrap=True)
    if any(problems.values()):
        sources = "; ".join((*source.urls, *source.packages))
        console.print(f"Get {source.title} from {sources}", markup=False, highlight=False, soft_wrap=True)
    return not any(problems.values())


def _show_task(output: Output, task: LanguageTask) -> None:
    output.answer(_task_json(task))
    facts = (("name", task.name), ("title", task.title), ("source", task.source), ("published as", task.data))
    print_facts([*facts, ("form", "JSON lines (.jsonl) or a JSON list (.json); nothing is downloaded")])
    rows = (
        (" or ".join(task.patterns(file)), ", ".join(_fields(file)), file.needed_for or "all") for file in task.files
    )
    print_table("", ("file", "fields", "needed for"), rows, empty="")


def _task_found(task: LanguageTask, roots: list[Path] | tuple[Path, ...]) -> str:
    folders = (folder for root in roots for folder in (root, root / task.name))
    return str(next((folder for folder in folders if holds_task(task, folder)), ""))


def _task_json(task: LanguageTask) -> dict[str, Any]:
    files = [
        {"names": task.patterns(file), "fields": _fields(file), "needed_for": file.needed_for} for file in task.files
    ]
    return {"name": task.name, "title": task.title, "source": task.source, "published_as": task.data, "files": files}


def _fields(file: TaskFile) -> list[str]:
    return [f"{name} ({FIELD_TYPES[kind]})" for name, kind in file.fields.items()]


def _source(name: str) -> DataSource:
    if name not in BY_NAME:
        raise InvalidInput(f"there is no data set {name!r}; there are {', '.join((*BY_NAME, *TASKS))}")
    return BY_NAME[name]


def _options(given: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"--option must be KEY=VALUE, was {text!r}")
        options[key] = value_of(value)
    return options


def _size(source: DataSource) -> str:
    return f"{source.download_mib} MiB" if source.download_mib else "-"
