"""The published recipes: what the papers print, and that each runs on data in its makers' files."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lethe.competition.file import read_competition_file
from lethe.data.datasets.registry import open_dataset
from lethe.data.forget_sets import cut_dataset
from lethe.data.stored_sets import StoredSet
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.preparation.fingerprint import network_description
from lethe.training.trainer import ModelTraining, TrainingJob
from tests.lethe.data.datasets.writers import WRITERS

FOLDER = Path(__file__).parents[3] / "examples" / "competitions"
FILES = {path.stem: read_competition_file(path) for path in FOLDER.glob("*.toml")}
IMAGES = {name: file for name, file in FILES.items() if file.task.kind == "image-classification"}
DOWNLOADED = sorted(name for name, file in IMAGES.items() if "root" in file.dataset.options)
SGD = {"optimizer": "sgd", "momentum": 0.9}
MIAU = {**SGD, "batch_size": 256, "learning_rate": 0.1, "weight_decay": 5e-4, "gamma": 0.2, "warmup_epochs": 1}
PUBLISHED: dict[str, dict[str, Any]] = {
    # Triantafillou et al. 2024, section A.7.1: reciprocals of class counts as weights, no augmentation (A.3)
    "casia-surf": {
        **SGD,
        "epochs": 30,
        "learning_rate": 1e-4,
        "weight_decay": 5e-3,
        "class_weights": "inverse-frequency",
        "augmentation": "none",
    },
    "femnist": {
        **SGD,
        "epochs": 120,
        "learning_rate": 5e-4,
        "weight_decay": 1e-3,
        "class_weights": "inverse-frequency",
    },
    # MIAU, section A.5.4, table 8
    "mnist": {**MIAU, "epochs": 5, "milestones": [2, 3, 4]},
    "cifar10": {**MIAU, "epochs": 20, "milestones": [8, 12, 16]},
    "cifar20": {**MIAU, "epochs": 40, "milestones": [15, 30, 35]},
    "mucac": {**MIAU, "epochs": 31, "milestones": [10, 20]},
    # Deep Unlearn, table VII
    "fashion-mnist": {"epochs": 50, "learning_rate": 0.1, "batch_size": 256},
    "cifar100": {"epochs": 182, "learning_rate": 0.1, "batch_size": 256},
    "utkface": {"epochs": 50, "learning_rate": 0.1, "batch_size": 128},
}


def test_every_example_with_a_paper_is_compared_with_it() -> None:
    assert sorted(PUBLISHED) == DOWNLOADED


@pytest.mark.parametrize("name", DOWNLOADED)
def test_recipe_is_the_published_one(name: str) -> None:
    recipe = FILES[name].training.model_dump(mode="json")
    assert {key: recipe[key] for key in PUBLISHED[name]} == PUBLISHED[name]


@pytest.mark.parametrize("name", DOWNLOADED)
def test_recipe_trains_on_data_in_its_makers_files(name: str, tmp_path: Path) -> None:
    file = FILES[name]
    if file.network.name == "tiny_vit":
        pytest.importorskip("timm")
    WRITERS[file.dataset.name](tmp_path)
    options = {**file.dataset.options, "root": str(tmp_path)}
    if "images" in options:
        options["images"] = 310
    if "size" in options:
        options["cache"] = str(tmp_path / "cache")
    dataset = open_dataset(file.dataset.model_copy(update={"options": options}))
    seeded = file.splits.model_copy(update={"seed": 1})
    cut = cut_dataset(dataset, file.model_copy(update={"splits": seeded}), "public")
    network = network_description(file, dataset)
    few = {
        name: StoredSet.cut_from(dataset, part[: 8 if name == "retain" else 2], cut.labels) for name, part in cut.sets()
    }
    recipe = file.training.model_copy(update={"batch_size": 4, "epochs": 1})
    job = TrainingJob.on_device(network, recipe, few["retain"].images, few["retain"].labels, device="cpu")
    training = ModelTraining.start(job, 7)
    before = training.state()
    training.run_epoch()
    after = training.state()
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert all(bool(torch.isfinite(value).all()) for value in after.values() if value.is_floating_point())
    outputs = SplitEvaluator(network, few, batch_size=4).evaluate_state(after)
    assert outputs.confidences.shape == (len(few["forget"]),)
