"""`lethe new`: a metric, a method or a dataset that works, with its test, to be changed into yours."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import lethe
from lethe.cli.output import console
from lethe.cli.scaffold import KINDS, Kind, checked_name, files_in_checkout, files_of_package, write_new
from lethe.errors import InvalidInput

app = typer.Typer(name="new", help="Write a new metric, method or dataset with its test.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Its id: lower-case letters, digits and underscores.", metavar="NAME")]
Package = Annotated[
    Path | None,
    typer.Option(
        "--package",
        help="Write a package of its own into this new folder. Outside a checkout: ./lethe-NAME by default.",
    ),
]
CHECKOUT = Path(lethe.__file__).resolve().parents[1]


def register_commands(parent: typer.Typer) -> None:
    parent.add_typer(app)


@app.command()
def metric(
    name: Name,
    *,
    family: Annotated[str, typer.Option("--family", help="The folder of lethe/metrics: what it measures.")] = "outputs",
    package: Package = None,
) -> None:
    """Write a metric, its test and its row in docs/metrics; outside a checkout, a package with a metric."""
    from lethe.metrics.core.registry import families, metrics

    _refuse_taken("metric", name, metrics())
    if family not in families():
        raise InvalidInput(f"no family of metrics is called {family!r}: allowed are {', '.join(families())}")
    _write(KINDS["metric"], name, package, subfolder=family)


@app.command()
def method(name: Name, package: Package = None) -> None:
    """Write a method, its test and its row in docs/methods; outside a checkout, a package with a method."""
    from lethe.methods.catalogue import FOLDERS, method_ids

    _refuse_taken("method", name, {known: task for task in FOLDERS for known in method_ids(task)})
    _write(KINDS["method"], name, package)


@app.command()
def dataset(name: Name, package: Package = None) -> None:
    """Write an adapter of a dataset and its test; outside a checkout, a package with an adapter."""
    from lethe.data.datasets.registry import adapters

    _refuse_taken("dataset", name, adapters())
    _write(KINDS["dataset"], name, package)


def _refuse_taken(kind: str, name: str, known: Mapping[str, object]) -> None:
    if checked_name(name) in known:
        raise InvalidInput(f"a {kind} is called {name!r} already: choose another name")


def _write(kind: Kind, name: str, package: Path | None, *, subfolder: str = "") -> None:
    in_checkout = package is None and (CHECKOUT / kind.tests).is_dir()
    folder = CHECKOUT if in_checkout else package or Path(f"lethe-{name.replace('_', '-')}")
    files = files_in_checkout(kind, name, subfolder=subfolder) if in_checkout else files_of_package(kind, name)
    written = write_new(folder, files)
    if in_checkout and kind.pages:
        subprocess.run([sys.executable, "-m", f"scripts.{kind.pages}"], cwd=CHECKOUT, check=True)
        written += [CHECKOUT / "docs" / kind.folder.name / ("index.md" if kind.name == "metric" else "README.md")]
    for path in written:
        console.print(f"Wrote {path}", highlight=False, markup=False, soft_wrap=True)
    install = f"pip install -e {folder}; " if not in_checkout else ""
    tests = next(path for path in written if path.name == f"test_{name}.py")
    console.print(
        f"It works as it is. Next: change it into yours; {install}python -m pytest {tests}",
        style="dim", highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
