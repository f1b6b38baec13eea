"""`lethe score` on files of arrays, `lethe confidences` from checkpoints to such a file."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from lethe.api.split import load_outputs, save_outputs
from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.score import ModelOutputs, score
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import competition

runner = CliRunner()


def draw(seed, n_models=32, shift=0.0):
    rng = np.random.default_rng(seed)
    return ModelOutputs(
        rng.normal(shift, 1.5, (n_models, 6)), rng.uniform(0.9, 1, n_models), rng.uniform(0.7, 0.8, n_models)
    )


@pytest.fixture
def files(tmp_path):
    for name, outputs in (("U", draw(0, shift=0.5)), ("R", draw(1)), ("O", draw(2))):
        save_outputs(tmp_path / f"{name}.npz", outputs)
    return tmp_path


def run(files, *options):
    sides = ("--unlearned", str(files / "U.npz"), "--retrained", str(files / "R.npz"))
    return runner.invoke(build_app(), ["score", *sides, *options])


def test_json_is_the_score_of_the_arrays(files):
    result = run(files, "--json")
    assert result.exit_code == 0, result.output
    expected = score(draw(0, shift=0.5), draw(1))
    found = json.loads(result.stdout)
    assert found["final_score"] == expected.final_score
    assert found["epsilon"] == expected.epsilon.tolist()
    assert found["interval"] is None


@pytest.mark.parametrize("attacks", ["reference", "exact", "disentangled"])
def test_every_family_can_be_chosen_and_has_an_interval(files, attacks):
    found = json.loads(run(files, "--attacks", attacks, "--bootstrap", "20", "--json").stdout)
    assert found["attacks"] == attacks
    low, high = found["interval"]
    assert low <= found["final_score"] <= high


def test_without_accuracies_forgetting_quality_alone_is_given(files):
    for name in "UR":
        save_outputs(files / f"{name}.npz", ModelOutputs(load_outputs(files / f"{name}.npz").confidences))
    found = json.loads(run(files, "--json").stdout)
    assert found["final_score"] is None
    assert 0.0 < found["forgetting_quality"] <= 1.0


def test_an_oracle_adds_the_fraction_of_it(files):
    oracle = str(files / "O.npz")
    found = json.loads(run(files, "--oracle", oracle, "--bootstrap", "20", "--json").stdout)
    assert found["fraction_of_oracle"] == pytest.approx(found["final_score"] / found["oracle_score"])
    assert found["leaked"] is False


def test_people_get_a_table_and_a_picture(files):
    result = run(files, "--plot", str(files / "out.png"))
    assert result.exit_code == 0
    assert "forgetting quality" in result.stdout
    assert (files / "out.png").read_bytes().startswith(b"\x89PNG")


def test_several_experiments_are_aggregated(files):
    save_outputs(files / "R.npz", draw(1, n_models=8))
    found = json.loads(run(files, "--setup", "reuse-n-n", "--experiments", "4", "--json").stdout)
    assert (found["n_models"], len(found["experiments"])) == (8, 4)
    assert found["interval"][0] < found["final_score"] < found["interval"][1]


def test_other_setups_divide_the_files_or_draw_from_them(files):
    found = json.loads(run(files, "--setup", "full", "--experiments", "4", "--json").stdout)
    assert (found["n_models"], len(found["experiments"])) == (8, 4)
    options = ("--setup", "bootstrap", "--experiments", "3", "--models", "16", "--json")
    found = json.loads(run(files, *options).stdout)
    assert (found["n_models"], found["n_experiments"]) == (16, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--setup", "twice"), "unknown setup 'twice'"),
        (("--experiments", "5"), "do not divide into 5"),
        (("--experiments", "2", "--bootstrap", "20"), "--bootstrap belongs to a single experiment"),
        (("--plot", "/nowhere/out.png"), "picture cannot be written to /nowhere/out.png"),
        (("--bootstrap", "5"), "at least 20 resamples"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_status_1(files, options, message):
    result = run(files, *options)
    assert result.exit_code == 1
    assert message in str(result.exception)
    assert isinstance(result.exception, InvalidInput | InvalidScoreInput)


def test_an_unknown_family_of_attacks_is_answered_with_those_there_are(files):
    result = run(files, "--attacks", "strongest")
    assert result.exit_code == 2
    assert all(family.value in result.stderr for family in AttackFamily)


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


def confidences(checkpoints: Path, split: Path, out: Path) -> None:
    words = ["confidences", str(checkpoints), "--split", str(split), "--out", str(out)]
    runner.invoke(build_app(), words, catch_exceptions=False, standalone_mode=False)


def test_models_are_evaluated_in_the_order_of_their_numbers(checkpoints: Path, split: Path, tmp_path: Path) -> None:
    confidences(checkpoints, split, tmp_path / "u.npz")
    evaluator = SplitEvaluator.load(split)
    expected = [evaluator.evaluate_state(_changed(split, number)) for number in (*NUMBERS, 11)]
    with np.load(tmp_path / "u.npz") as written:
        np.testing.assert_array_equal(written["confidences"], [each.confidences for each in expected])
        np.testing.assert_array_equal(written["test_accuracy"], [each.test_accuracy for each in expected])


def test_folders_that_hold_no_such_checkpoints_are_refused(checkpoints: Path, split: Path, tmp_path: Path) -> None:
    for name, content, said in (
        ("model_3.pth", {"other": torch.zeros(2)}, r"model_3\.pth does not fit"),
        ("model_1.pth", {"path": Path("x")}, r"model_1\.pth holds more than tensors"),
    ):
        torch.save(content, checkpoints / name)
        with pytest.raises(InvalidInput, match=said):
            confidences(checkpoints, split, tmp_path / "u.npz")
    with pytest.raises(InvalidInput, match="holds no checkpoint"):
        confidences(tmp_path, split, tmp_path / "u.npz")
