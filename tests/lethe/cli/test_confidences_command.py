"""From checkpoints to arrays: the same numbers as the pipeline's, in the order of the models' numbers."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import competition

NUMBERS = (2, 10)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("confidences") / "public"
    prepare_split(competition(n_models=4), "public", out)
    return out


@pytest.fixture
def checkpoints(tmp_path: Path, split: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    for number in NUMBERS:
        safetensors.torch.save_file(_changed(split, number), folder / f"model_{number}.safetensors")
    torch.save(_changed(split, 11), folder / "model_11.pth")
    return folder


def _changed(split: Path, number: int) -> dict[str, torch.Tensor]:
    return {name: value + 0.01 * number for name, value in load_original(split).items()}


def run(checkpoints: Path, split: Path, out: Path) -> None:
    CliRunner().invoke(
        build_app(),
        ["confidences", str(checkpoints), "--split", str(split), "--out", str(out)],
        catch_exceptions=False,
        standalone_mode=False,
    )


def test_models_are_evaluated_in_the_order_of_their_numbers(checkpoints: Path, split: Path, tmp_path: Path) -> None:
    run(checkpoints, split, tmp_path / "u.npz")
    evaluator = SplitEvaluator.load(split)
    expected = [evaluator.evaluate_state(_changed(split, number)) for number in (*NUMBERS, 11)]
    with np.load(tmp_path / "u.npz") as written:
        np.testing.assert_array_equal(written["confidences"], [each.confidences for each in expected])
        np.testing.assert_array_equal(written["test_accuracy"], [each.test_accuracy for each in expected])


def test_a_checkpoint_of_another_network_is_named(checkpoints: Path, split: Path, tmp_path: Path) -> None:
    safetensors.torch.save_file({"other": torch.zeros(2)}, checkpoints / "model_3.safetensors")
    with pytest.raises(InvalidInput, match=r"model_3\.safetensors does not fit"):
        run(checkpoints, split, tmp_path / "u.npz")


def test_a_pickle_with_more_than_tensors_is_refused(checkpoints: Path, split: Path, tmp_path: Path) -> None:
    torch.save({"path": Path("x")}, checkpoints / "model_1.pth")
    with pytest.raises(InvalidInput, match=r"model_1\.pth holds more than tensors"):
        run(checkpoints, split, tmp_path / "u.npz")


def test_a_folder_without_checkpoints_is_refused(split: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no checkpoint"):
        run(tmp_path, split, tmp_path / "u.npz")
