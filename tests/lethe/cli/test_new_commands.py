"""`lethe new`: what it writes passes every check as it is, in a checkout and as a package of its own."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer.testing

from lethe.cli.main import build_app
from lethe.cli.new_commands import KINDS, MAX_NAME_LENGTH, files_in_checkout, files_of_package
from lethe.errors import InvalidInput
from tests.support.checkout import ROOT, copy_checkout, run

NAMES = {"metric": "spread", "method": "shrink", "dataset": "one_archive"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a checkout with a new metric, a new method and a new dataset."""
    folder = copy_checkout(tmp_path_factory.mktemp("checkout"), types=True)
    for kind, name in NAMES.items():
        run("-m", "lethe.cli.main", "new", kind, name, folder=folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def written() -> list[str]:
    """Return the paths of every module and test in the checkout."""
    return [
        path
        for kind, name in NAMES.items()
        for path in files_in_checkout(KINDS[kind], name, subfolder="outputs" if kind == "metric" else "")
    ]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # other programs, however busy the machine is
def test_new_files_pass_ruff_and_mypy(checkout: Path, written: list[str]) -> None:
    run("ruff", "check", "--no-cache", *written, folder=checkout)
    run("ruff", "format", "--no-cache", "--check", *written, folder=checkout)
    assert f"no issues found in {len(written)} source files" in run("mypy", *written, folder=checkout)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # other programs, however busy the machine is
def test_new_files_pass_their_own_tests_and_all_others(checkout: Path, written: list[str]) -> None:
    """The others: those that find metrics, methods and pages by themselves."""
    found = ["tests/lethe/metrics/test_registry.py", "tests/lethe/methods/test_catalogue.py"]
    cases = {
        "tests/lethe/metrics/test_every_metric.py": "spread",
        "tests/lethe/methods/test_every_method.py": "shrink or functions_of_one_name",
    }
    tests = [path for path in written if path.startswith("tests/")]
    chosen = " or ".join(["test_spread", "test_shrink", "test_one_archive", *(Path(path).stem for path in found)])
    cases_chosen = " or ".join(f"({Path(path).stem} and ({words}))" for path, words in cases.items())
    options = ["-q", "-p", "no:cacheprovider", "-k", f"{chosen} or {cases_chosen}"]
    said = run("-m", "pytest", *tests, *found, *cases, *options, folder=checkout)
    assert "failed" not in said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["x", "l" * MAX_NAME_LENGTH])
def test_names_of_any_length_keep_the_format(kind: str, name: str, tmp_path: Path) -> None:
    for folder, files in (
        ("checkout", files_in_checkout(KINDS[kind], name, subfolder="distribution" if kind == "metric" else "")),
        ("package", files_of_package(KINDS[kind], name)),
    ):
        for path, text in files.items():
            (tmp_path / folder / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / path).write_text(text)
    shutil.copy2(ROOT / "pyproject.toml", tmp_path / "checkout")
    for folder in ("checkout", "package"):
        run("ruff", "check", "--no-cache", ".", folder=tmp_path / folder)
        run("ruff", "format", "--no-cache", "--check", ".", folder=tmp_path / folder)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of a package for each kind."""
    above = tmp_path_factory.mktemp("packages")
    for kind, name in NAMES.items():
        result = invoke("new", kind, name, "--package", str(above / kind))
        assert result.exit_code == 0, result.output
    return {kind: above / kind for kind in NAMES}


def invoke(*words: str) -> typer.testing.Result:
    return typer.testing.CliRunner().invoke(build_app(), list(words))


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_package_passes_its_own_test(kind: str, packages: dict[str, Path]) -> None:
    run("-m", "pytest", "-q", "-W", "error", "-p", "no:valkey", "tests", folder=packages[kind])


@pytest.mark.parametrize("kind", NAMES)
def test_entry_point_of_a_package_is_there(kind, packages, monkeypatch):
    project = tomllib.loads((packages[kind] / "pyproject.toml").read_text())["project"]
    ((name, target),) = project["entry-points"][f"lethe.{kind}s"].items()
    module, _, function = target.partition(":")
    monkeypatch.syspath_prepend(packages[kind])
    found = import_module(module)
    assert name == NAMES[kind]
    assert hasattr(found, {"metric": "METRIC", "method": "unlearning", "dataset": function}[kind])


@pytest.mark.parametrize("name", ["", "Spread", "2nd", "a-b", "../x", "class", "l" * (MAX_NAME_LENGTH + 1)])
def test_name_that_no_module_can_have_is_refused(name: str, tmp_path: Path) -> None:
    refused = invoke("new", "metric", name, "--package", str(tmp_path / "new"))
    assert isinstance(refused.exception, InvalidInput)
    assert "lower-case letters, digits and underscores" in refused.exception.detail
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("metric", "klom"), "a metric is called 'klom' already"),
        (("method", "scrub"), "a method is called 'scrub' already"),
        (("dataset", "mnist"), "a dataset is called 'mnist' already"),
        (("metric", "spread", "--family", "output"), "no family of metrics is called 'output': allowed are accuracy"),
    ],
)
def test_name_that_is_taken_or_an_unknown_family_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in str(invoke("new", *words, "--package", str(tmp_path / "new")).exception)


def test_files_that_are_there_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_spread.py").write_text("mine")
    refused = invoke("new", "metric", "spread", "--package", str(tmp_path))
    assert "test_spread.py is there already" in str(refused.exception)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["test_spread.py"]


def test_outside_a_checkout_a_package_is_written(tmp_path: Path) -> None:
    """The library is installed without the rest of the repository."""
    shutil.copytree(ROOT / "lethe", tmp_path / "site" / "lethe")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "lethe.cli.main", "new", "metric", "mean_gap"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "lethe-mean-gap" / "lethe_mean_gap" / "mean_gap.py").is_file()
    assert "pip install -e lethe-mean-gap" in ran.stdout
