"""`lethe data`: which data sets and tasks there are, what is found in a folder, and whether it is intact."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.context import Commands, Output
from lethe.cli.output import console, print_facts, print_table
from lethe.data.catalogue import BY_NAME, SOURCES, DataSource, check_file, find_folder, stored_path
from lethe.errors import InvalidInput
from lethe.huggingface.task_catalogue import TASKS, LanguageTask, TaskFile
from lethe.huggingface.task_data import FIELD_TYPES, holds_task, read_files

app = Commands(name="data", help="Data sets: found where, from where, intact or not.", no_args_is_help=True)
Roots = Annotated[
    list[Path] | None, typer.Option("--root", "-r", help="A folder to look in; can be repeated. Default: data")
]
Name = Annotated[str, typer.Argument(help="A data set of `lethe data list`.", metavar="NAME")]
DEFAULT_ROOTS = (Path("data"), Path("/usr/share/datasets"))
FAILED = 3


def register_commands(parent: typer.Typer) -> None:
    parent.add_typer(app)


@app.command("list")
def list_data(output: Output, root: Roots = None) -> None:
    """List the data sets that adapters read, and where each is found."""
    roots = root or DEFAULT_ROOTS
    found = [(source, _found(source, roots)) for source in SOURCES]
    if output.as_json:
        tasks = [_task_json(task) | {"found": _task_found(task, roots)} for task in TASKS.values()]
        output.answer([*(_as_json(source) | {"found": where} for source, where in found), *tasks])
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
    output.answer(_as_json(source))
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
        _check_task(TASKS[name], (root or DEFAULT_ROOTS)[0])
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


def _check_task(task: LanguageTask, folder: Path) -> None:
    """Read a task's files and print how many rows each has."""
    for file in task.files:
        found = read_files(task, folder, file)
        text = ", ".join(f"{path.name}: {n} rows" for path, n in found) or f"missing: without it no {file.needed_for}"
        console.print(f"{file.path}: {text}", markup=False, highlight=False, soft_wrap=True)


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
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options


def _found(source: DataSource, roots: list[Path] | tuple[Path, ...]) -> str:
    if not source.files:
        return "built in"
    folder = find_folder(source, roots)
    return "" if folder is None else str(folder)


def _size(source: DataSource) -> str:
    return f"{source.download_mib} MiB" if source.download_mib else "-"


def _as_json(source: DataSource) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(source)
