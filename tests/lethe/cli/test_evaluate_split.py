"""`lethe evaluate --split`: checkpoints against the references of a prepared split."""

import json
from pathlib import Path

import pytest
import safetensors.torch
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.evaluation.image_evaluation import load_original
from lethe.metrics.scoring.attacks.family import MIN_MODELS_DIVIDED


def run(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(build_app(), ["evaluate", *words])
    return found.exit_code, found.output


def test_original_models_are_as_far_as_the_original_reference(prepared: Path, tmp_path: Path) -> None:
    for number in range(5):
        safetensors.torch.save_file(load_original(prepared), tmp_path / f"model-{number}.safetensors")
    status, output = run("--split", str(prepared), "--models", str(tmp_path), "-m", "klom", "--json")
    assert status == 0, output
    found = json.loads(output)["metrics"]["klom"]
    assert found["result"]["value"] == found["original"]["value"]
    assert found["oracle"]["value"] > 0


def test_split_without_models_is_refused(prepared: Path) -> None:
    status, output = run("--split", str(prepared))
    assert status == 1
    assert "--models" in output


def test_missing_retrained_models_are_named(tmp_path: Path) -> None:
    status, output = run("--unlearned", str(tmp_path / "u.npz"))
    assert status == 1
    assert "--retrained" in output


def test_probes_give_the_metrics_of_weights(prepared: Path, tmp_path: Path) -> None:
    for number in range(5):
        safetensors.torch.save_file(load_original(prepared), tmp_path / f"model-{number}.safetensors")
    words = ("--split", str(prepared), "--models", str(tmp_path), "-m", "relearn_time", "-m", "residual_knowledge")
    status, output = run(*words)
    assert status == 1
    assert "`relearn_epochs` of the unlearned models is missing (capture level 4)" in output
    assert "--probes" in output
    status, output = run(*words, "--probes", "2", "--json")
    assert status == 0, output
    found = json.loads(output)["metrics"]
    relearn, residual = found["relearn_time"]["result"], found["residual_knowledge"]["result"]
    assert relearn["table"]["unlearned"] == 0.0, "the original model knows the forget set"
    assert relearn["table"]["retrained"] > 0.0
    assert residual["value"] == found["residual_knowledge"]["original"]["value"]


@pytest.mark.parametrize("n_models", [3, 7])
def test_other_numbers_of_checkpoints_than_retrained_models_are_taken(prepared, tmp_path, n_models):
    """Metrics that need pairs say so; epsilon is of as many models as both sides have, if they can be divided."""
    for number in range(n_models):
        safetensors.torch.save_file(load_original(prepared), tmp_path / f"model-{number}.safetensors")
    words = ("--split", str(prepared), "--models", str(tmp_path), "-m", "klom", "-m", "epsilon_histogram", "-m", "f")
    status, output = run(*words, "--json")
    assert status == 1, "one of the metrics that were asked for cannot be computed"
    found = json.loads(output)["metrics"]
    assert found["klom"]["result"]["value"] == found["klom"]["original"]["value"]
    epsilon = found["epsilon_histogram"]["result"]
    assert (epsilon is None) == (n_models < MIN_MODELS_DIVIDED), "too few to fit on one half and judge on the other"
    assert f"unlearned has {n_models}, retrained 5" in found["f"]["not_computed"]
