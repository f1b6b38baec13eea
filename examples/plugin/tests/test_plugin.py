"""From the package's dataset and network to its metric, with its method."""

from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import lethe
from lethe.competition.file import CompetitionFile
from lethe.methods.catalogue import method_info
from lethe.preparation.prepare import prepare_split


@pytest.fixture(scope="module")
def split(tmp_path_factory) -> lethe.Split:
    competition = CompetitionFile.model_validate(
        {
            "slug": "stripes",
            "title": "Stripes",
            "opens_at": "2030-01-01T00:00:00Z",
            "closes_at": "2030-02-01T00:00:00Z",
            "n_models": 4,
            "dataset": {"name": "stripes", "options": {"n": 400}},
            "network": {"name": "bottleneck", "options": {"width": 16}},
            "training": {"epochs": 15, "batch_size": 16, "learning_rate": 0.02, "min_train_accuracy": 0.8},
            "splits": {"train_size": 120, "test_fraction": 0.2, "forget": {"by": "random", "fraction": 0.1}},
        }
    )
    folder: Path = tmp_path_factory.mktemp("split")
    prepare_split(competition, "public", folder)
    return lethe.Split.load(folder)


def test_method_is_described_by_its_file() -> None:
    assert [constant.name for constant in method_info("shrink").constants] == ["FACTOR", "LR", "EPOCHS"]


def test_metric_is_the_distance_of_the_means() -> None:
    confidences = np.random.default_rng(0).normal(size=(16, 5))
    found = lethe.evaluate(confidences + 2.0, confidences, metrics="confidence_gap")
    assert found["confidence_gap"].result.value == pytest.approx(2.0)


@pytest.mark.filterwarnings("ignore:only 4 models")
def test_all_of_it_works_together(split: lethe.Split) -> None:
    models = lethe.methods.run("shrink", split, runs=4, FACTOR=0.5)
    found = lethe.evaluate(models, split=split, metrics=["confidence_gap", "f"])
    assert found["confidence_gap"].result.value > 0
    assert found["confidence_gap"].oracle is not None


def test_task_is_found_by_its_name() -> None:
    (point,) = entry_points(group="lethe.text_tasks", name="towns")
    assert point.value == "lethe_example.towns:towns"
