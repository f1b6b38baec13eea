"""Splits whose competition asks for retrained models under variations of the recipe."""

from pathlib import Path

import numpy as np
import pytest

from lethe.competition.file import Scoring
from lethe.data.files import read_tensors
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import RECIPE_OUTPUTS, read_outputs
from lethe.evaluation.split_inputs import split_inputs
from lethe.metrics import evaluate
from lethe.preparation.prepare import prepare_split
from lethe.preparation.step_cache import PreparationProgress
from tests.lethe.conftest import competition

VARIATIONS = [{"epochs": 3}, {"weight_decay": 5e-4, "batch_size": 32}]


def asked(n_models: int = 4, variations: list[dict[str, float]] = VARIATIONS) -> object:
    return competition(
        splits={"recipes": {"models": n_models, "variations": variations}}, report={"metrics": ["recipe_spread"]}
    )


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recipes") / "public"
    plain = prepare_split(competition(), "public", out)
    varied = prepare_split(asked(), "public", out)
    assert set(varied.files) - set(plain.files) == {RECIPE_OUTPUTS}
    assert all(varied.files[path] == record for path, record in plain.files.items())
    return out


def test_models_of_every_variation_are_stored(split: Path) -> None:
    arrays = {name: tensor.numpy() for name, tensor in read_tensors(split / RECIPE_OUTPUTS).items()}
    n_forget = read_outputs(split).confidences.shape[1]
    assert arrays["recipe_confidences"].shape == (2, 4, n_forget)
    assert arrays["recipe_test_accuracy"].shape == (2, 4)
    training = competition().training
    assert arrays["recipe_settings"].tolist() == [
        [3.0, training.weight_decay, training.batch_size, 0.0],
        [training.epochs, 5e-4, 32.0, 0.0],
    ]


def test_models_differ_from_each_other_and_from_the_standard_ones(split: Path) -> None:
    arrays = read_tensors(split / RECIPE_OUTPUTS)["recipe_confidences"].numpy()
    rows = np.concatenate([*arrays, read_outputs(split).confidences, read_outputs(split, "oracle").confidences])
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_metric_of_the_split_is_computed(split: Path) -> None:
    inputs = split_inputs(split, dict(read_outputs(split, "oracle").arrays()), scored_by=Scoring())
    found = evaluate(inputs, ["recipe_spread"])["recipe_spread"]
    assert found.result is not None, found.not_computed
    assert found.result.value == 1.0


def test_other_variations_are_made_and_nothing_else(split: Path) -> None:
    before = Manifest.read(split)
    after = prepare_split(asked(variations=[{"epochs": 3}]), "public", split)
    changed = {path for path, record in after.files.items() if before.files.get(path) != record}
    assert changed == {RECIPE_OUTPUTS}
    assert read_tensors(split / RECIPE_OUTPUTS)["recipe_confidences"].shape[0] == 1


def test_preparation_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def break_off(made: PreparationProgress) -> None:
        if "weight-decay" in made.stage:
            raise Broken

    with pytest.raises(Broken):
        prepare_split(asked(), "public", tmp_path, progress=break_off)
    stages: list[str] = []
    prepare_split(asked(), "public", tmp_path, progress=lambda made: stages.append(made.stage))
    assert not any("epochs-3" in stage for stage in stages), "its models were trained before"
    assert any("batch-size-32" in stage for stage in stages)
