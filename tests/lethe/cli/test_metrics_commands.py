"""`lethe metrics`, `lethe evaluate` and `lethe compare` on files, and on checkpoints beside a split."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import typer
from typer.testing import CliRunner

from lethe.cli.metrics_commands import register_commands
from lethe.evaluation.image_evaluation import load_original
from lethe.metrics.scoring.attacks.family import MIN_MODELS_DIVIDED
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
    return ran.output or str(ran.exception)


def side(files, *names):
    return [part for name in names for part in (f"--{name}", files / f"{name}.npz")]


def test_catalogue_as_json():
    assert json.loads(run("metrics", "klom", "--json"))[0]["direction"] == "lower"


@pytest.mark.parametrize(
    ("sides", "options", "status", "said"),
    [
        (("unlearned", "retrained"), ("--all",), 0, ("js_to_retrained",)),
        (("unlearned", "retrained"), (), 0, ("js_to_retrained",)),
        (("unlearned", "retrained"), ("-m", "miau"), 1, ("give the arrays of the original models",)),
        (("unlearned",), (), 1, ("--retrained",)),
        ((), ("--split", "any"), 1, ("--models",)),
    ],
)
def test_evaluate_computes_what_it_can_and_says_what_is_missing(files, sides, options, status, said):
    output = run("evaluate", *side(files, *sides), *options, status=status)
    assert all(text in output for text in said)
    assert status or ("miau: not computed" in output) == bool(options)


def test_evaluate_takes_parameters(files):
    output = run("evaluate", *side(files, "unlearned", "retrained"), "-m", "klom:bins=5,clip=20", "--json")
    assert json.loads(output)["metrics"]["klom"]["parameters"] == {"bins": 5, "clip": 20.0, "floor": 1e-5}


def test_evaluate_draws_a_picture_beside_json(files):
    path, sides = files / "metrics.png", side(files, "unlearned", "retrained", "oracle", "original")
    output = run("evaluate", *sides, "-m", "klom", "--plot", path, "--json")
    assert json.loads(output)["metrics"]["klom"]["original"]["value"] > 0.0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_compare_arrays(files):
    options = ("-m", "tow", "-m", "epsilon_correlation")
    output = run("compare", files / "unlearned.npz", files / "other.npz", *side(files, "retrained"), *options, "--json")
    found = json.loads(output)
    assert list(found["submissions"]) == ["unlearned", "other"]
    assert "epsilon_correlation" in found["together"]
    assert "give --retrained" in run("compare", files / "unlearned.npz", files / "other.npz", status=1)


def test_compare_stored_results(files):
    path, other = files / "unlearned.json", files / "other.json"
    for name in ("unlearned", "other"):
        sides = ("--unlearned", files / f"{name}.npz", *side(files, "retrained"))
        run("evaluate", files / f"{name}.json", *sides, "-m", "tow", "--json")
    assert "tow" in run("compare", path, other)
    assert "no file holds klom" in run("compare", path, other, "-m", "klom", status=1)
    stored = json.loads(path.read_text())
    stored["metrics"]["tow"] |= {"result": None, "not_computed": "unequal numbers of models"}
    path.write_text(json.dumps(stored))
    assert "tow: not computed: unequal numbers of models" in run("compare", path, path)


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


@pytest.fixture
def models(prepared: Path, tmp_path: Path) -> Callable[[int], list[object]]:
    """Return a function that stores as many copies of the original model, and returns what names them and the split."""

    def stored(n_models: int) -> list[object]:
        folder = tmp_path / f"{n_models}-models"
        folder.mkdir()
        for number in range(n_models):
            safetensors.torch.save_file(load_original(prepared), folder / f"model-{number}.safetensors")
        return ["evaluate", "--split", prepared, "--models", folder]

    return stored


def test_probes_give_the_metrics_of_weights(models: Callable[[int], list[object]]) -> None:
    words = (*models(5), "-m", "relearn_time", "-m", "residual_knowledge")
    output = run(*words, status=1)
    assert "`relearn_epochs` of the unlearned models is missing (capture level 4)" in output
    assert "--probes" in output
    found = json.loads(run(*words, "--probes", "2", "--json"))["metrics"]
    relearn, residual = found["relearn_time"]["result"], found["residual_knowledge"]["result"]
    assert relearn["table"]["unlearned"] == 0.0, "the original model knows the forget set"
    assert relearn["table"]["retrained"] > 0.0
    assert residual["value"] == found["residual_knowledge"]["original"]["value"]


@pytest.mark.parametrize("n_models", [3, 7])
def test_other_numbers_of_checkpoints_than_retrained_models_are_taken(models, n_models):
    """Metrics that need pairs say so; epsilon is of as many models as both sides have, if they can be divided."""
    asked = ("-m", "klom", "-m", "epsilon_histogram", "-m", "f")
    found = json.loads(run(*models(n_models), *asked, "--json", status=1))["metrics"]
    assert found["klom"]["result"]["value"] == found["klom"]["original"]["value"]
    assert found["klom"]["oracle"]["value"] > 0
    epsilon = found["epsilon_histogram"]["result"]
    assert (epsilon is None) == (n_models < MIN_MODELS_DIVIDED), "too few to fit on one half and judge on the other"
    assert f"unlearned has {n_models}, retrained 5" in found["f"]["not_computed"]
