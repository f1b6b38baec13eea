"""`lethe metrics`, `lethe evaluate` and `lethe compare` on files."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from lethe.cli.metrics_commands import register_commands
from tests.lethe.metrics import synthetic

app = typer.Typer()
register_commands(app)


@pytest.fixture
def files(tmp_path):
    for name, arrays in (synthetic.sides() | {"other": synthetic.side_arrays(9)}).items():
        shared = synthetic.split_arrays() if name == "retrained" else {}
        np.savez(tmp_path / f"{name}.npz", **arrays, **shared)
    return tmp_path


def run(*arguments, status=0):
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert ran.exit_code == status, ran.output
    return ran.output


def side(files, *names):
    return [part for name in names for part in (f"--{name}", files / f"{name}.npz")]


def test_catalogue_as_json():
    assert json.loads(run("metrics", "klom", "--json"))[0]["direction"] == "lower"


def test_evaluate_prints_json_with_references(files):
    output = run("evaluate", *side(files, "unlearned", "retrained", "oracle", "original"), "-m", "klom", "--json")
    assert json.loads(output)["metrics"]["klom"]["original"]["value"] > 0.0


def test_evaluate_without_names_computes_what_it_can(files):
    output = run("evaluate", *side(files, "unlearned", "retrained"))
    assert "js_to_retrained" in output
    assert "miau" not in output, "it needs the original"


def test_evaluate_of_a_missing_array_is_an_error(files):
    output = run("evaluate", *side(files, "unlearned", "retrained"), "-m", "miau", status=1)
    assert "give the arrays of the original models" in output


def test_evaluate_all_lists_what_is_missing(files):
    output = run("evaluate", *side(files, "unlearned", "retrained"), "--all")
    assert "miau: not computed" in output


def test_evaluate_takes_parameters(files):
    output = run("evaluate", *side(files, "unlearned", "retrained"), "-m", "klom:bins=5,clip=20", "--json")
    assert json.loads(output)["metrics"]["klom"]["parameters"] == {"bins": 5, "clip": 20.0, "floor": 1e-5}


def test_evaluate_draws_a_picture(files):
    path = files / "metrics.png"
    run("evaluate", *side(files, "unlearned", "retrained", "oracle", "original"), "-m", "klom", "--plot", path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_compare_arrays(files):
    options = ("-m", "tow", "-m", "epsilon_correlation")
    output = run("compare", files / "unlearned.npz", files / "other.npz", *side(files, "retrained"), *options, "--json")
    found = json.loads(output)
    assert list(found["submissions"]) == ["unlearned", "other"]
    assert "epsilon_correlation" in found["together"]


def test_compare_stored_results(files):
    for name in ("unlearned", "other"):
        stored = run("evaluate", "--unlearned", files / f"{name}.npz", *side(files, "retrained"), "-m", "tow", "--json")
        (files / f"{name}.json").write_text(stored)
    assert "tow" in run("compare", files / "unlearned.json", files / "other.json")
    assert "no file holds klom" in run(
        "compare", files / "unlearned.json", files / "other.json", "-m", "klom", status=1
    )


def test_compare_says_why_a_stored_value_is_missing(files):
    path = files / "unlearned.json"
    path.write_text(run("evaluate", "--unlearned", files / "unlearned.npz", *side(files, "retrained"), "--json"))
    stored = json.loads(path.read_text())
    stored["metrics"]["tow"] |= {"result": None, "not_computed": "unequal numbers of models"}
    path.write_text(json.dumps(stored))
    assert "tow: not computed: unequal numbers of models" in run("compare", path, path)


def test_compare_of_arrays_needs_retrained_models(files):
    assert "give --retrained" in run("compare", files / "unlearned.npz", files / "other.npz", status=1)


def test_stored_metrics_are_not_compared_across_n(files):
    arrays = {name: np.asarray(rows) for name, rows in synthetic.side_arrays(1).items()}
    np.savez(files / "fewer.npz", **{name: rows[:4] if len(rows) == 8 else rows for name, rows in arrays.items()})
    for name in ("unlearned", "fewer"):
        run("evaluate", files / f"{name}.json", "--unlearned", files / f"{name}.npz", *side(files, "retrained"),
            "-m", "klom", "--json")  # fmt: skip
    output = run("compare", files / "unlearned.json", files / "fewer.json", status=1)
    assert "unlearned has N = 8, fewer has N = 4" in output
    arrays = run("compare", files / "unlearned.npz", files / "fewer.npz", *side(files, "retrained"), status=1)
    assert "do not compare across it" in arrays


def test_array_that_no_metric_reads_is_named(files):
    arrays = dict(np.load(files / "unlearned.npz"))
    np.savez(files / "unlearned.npz", **arrays, forget_logit=arrays["confidences"])
    found = json.loads(run("evaluate", *side(files, "unlearned", "retrained"), "-m", "klom", "--json"))
    assert any(
        "no metric reads `forget_logit` of the unlearned models; did you mean" in said for said in found["warnings"]
    )
