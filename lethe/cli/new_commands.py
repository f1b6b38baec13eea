"""`lethe new`: a metric, a method or a dataset that works, with its test, to be changed into yours."""

import keyword
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

import lethe
from lethe.cli.output import console
from lethe.errors import InvalidInput

TEMPLATES = Path(__file__).parent / "templates"
MAX_NAME_LENGTH = 30  # characters; so that a line of imports fits
PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["lethe-unlearning[torch]"]

[project.entry-points."lethe.{kind}s"]
{name} = "{target}"

[tool.setuptools]
packages = ["{package}"]

[tool.ruff]
line-length = 120

[tool.ruff.lint.isort]
known-first-party = ["lethe", "{package}"]

[tool.mypy]
strict = true
"""


@dataclass(frozen=True)
class Kind:
    """What may be new. folder, tests: where it lies in a checkout. pages: the module that writes its page, if any."""

    name: str
    folder: PurePosixPath
    tests: PurePosixPath
    pages: str | None = None


KINDS = {
    "metric": Kind("metric", PurePosixPath("lethe/metrics"), PurePosixPath("tests/lethe/metrics"), "metric_pages"),
    "method": Kind("method", PurePosixPath("lethe/methods"), PurePosixPath("tests/lethe/methods"), "method_pages"),
    "dataset": Kind("dataset", PurePosixPath("lethe/data/datasets"), PurePosixPath("tests/lethe/data/datasets")),
}


def checked_name(name: str) -> str:
    """Return the name. Raises InvalidInput, saying what is allowed, for one that no module can have."""
    if not re.fullmatch(rf"[a-z][a-z0-9_]{{0,{MAX_NAME_LENGTH - 1}}}", name) or keyword.iskeyword(name):
        raise InvalidInput(
            f"the name {name!r} is not allowed: 1 to {MAX_NAME_LENGTH} lower-case letters, digits and underscores, "
            "a letter first, and not a keyword of Python"
        )
    return name


def files_in_checkout(kind: Kind, name: str, *, subfolder: str = "") -> dict[str, str]:
    """Return the text of the module and of its test, by their paths in a checkout. subfolder: a metric's family."""
    module = kind.folder / subfolder / f"{name}.py"
    return {
        str(module): _written(kind, name, f"new_{kind.name}.py", module=module),
        str(kind.tests / f"test_{name}.py"): _written(kind, name, f"test_new_{kind.name}.py", module=module),
    }


def files_of_package(kind: Kind, name: str) -> dict[str, str]:
    """Return the text of every file of a package that adds this by an entry point, by their paths in its folder."""
    package = f"lethe_{name}"
    module = PurePosixPath(package) / f"{name}.py"
    target = f"{package}.{name}" + (f":open_{name}" if kind.name == "dataset" else "")
    pyproject = PYPROJECT.format(
        distribution=package.replace("_", "-").rstrip("-"), kind=kind.name, name=name, package=package, target=target
    )
    code = _written(kind, name, f"new_{kind.name}.py", module=module)
    if kind.name == "dataset":  # its entry point names the function
        code = code.replace("import Adapter, ", "import ").partition("\n\n\nADAPTERS")[0] + "\n"
    return {
        "pyproject.toml": pyproject,
        f"{package}/__init__.py": f'"""A {kind.name} for Lethe."""\n',
        str(module): code,
        f"tests/test_{name}.py": _written(kind, name, f"test_new_{kind.name}.py", module=module),
    }


def _written(kind: Kind, name: str, template: str, *, module: PurePosixPath) -> str:
    """Return a template's text for a module of this name at this path."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    package = ".".join(module.parent.parts)
    text = text.replace("lethe.cli.templates", package).replace(f"new_{kind.name}", name)
    text = text.replace(f"New {kind.name}", name.replace("_", " ").strip().capitalize())
    return re.sub(r"(?:^from lethe.*\n)+", _sorted_lines, text, flags=re.MULTILINE)


def _sorted_lines(block: re.Match[str]) -> str:
    return "".join(sorted(block[0].splitlines(keepends=True)))


def write_new(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files below a folder and return their paths. Raises InvalidInput, and writes nothing, if one is there."""
    paths = [folder / name for name in files]
    if there := [path for path in paths if path.exists()]:
        raise InvalidInput(f"{there[0]} is there already: choose another name, or remove it first")
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return paths


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
