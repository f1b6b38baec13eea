"""The example competitions: intact, cut as they say, with the papers' recipes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lethe.competition.file import read_competition_file
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import adapters, open_dataset
from lethe.data.errors import InvalidDataset
from lethe.data.forget_sets import cut_dataset
from lethe.data.stored_sets import StoredSet
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.evaluation.manifest import verify_split
from lethe.evaluation.model_outputs import read_outputs
from lethe.networks.builders import build
from lethe.preparation.image_task import describe_network
from lethe.preparation.prepare import prepare_split
from lethe.preparation.task_kinds import task_preparation
from lethe.training.trainer import ModelTraining, TrainingJob

FOLDER = Path(__file__).parents[3] / "examples" / "competitions"
FILES = {path.stem: read_competition_file(path) for path in sorted(FOLDER.glob("*.toml"))}
SHAPES = {  # what the adapters of data that is not here would give
    "casia-surf": ([3, 32, 32], 10),
    "celeba": ([3, 128, 128], 8),
    "cifar10": ([3, 32, 32], 10),
    "cifar20": ([3, 32, 32], 20),
    "cifar100": ([3, 32, 32], 100),
    "fashion-mnist": ([1, 28, 28], 10),
    "femnist": ([1, 28, 28], 62),
    "mnist": ([1, 28, 28], 10),
    "utkface": ([3, 224, 224], 5),
    "digits": ([1, 8, 8], 10),
    "faces": ([3, 32, 32], 10),
    "table": ([30, 1, 1], 2),
}


@pytest.mark.parametrize("name", FILES)
def test_example_names_itself_and_builds_its_network(name: str) -> None:
    competition = FILES[name]
    assert competition.slug == name
    network = competition.network
    if competition.task.kind == "causal-lm":
        if "pretrained" in network.options:
            return  # its sizes come with its file
        given = {"task": competition.task.kind, "name": network.name, "options": network.options}
        build(given | {"vocabulary_size": competition.dataset.options["vocabulary"]})
        return
    assert competition.dataset.name in adapters()
    if competition.network.name == "tiny_vit":
        pytest.importorskip("timm")
    shape, n_classes = SHAPES[competition.dataset.name]
    build({"name": network.name, "options": network.options, "input_shape": shape, "n_classes": n_classes})


@pytest.mark.parametrize("name", [name for name, file in FILES.items() if "root" in file.dataset.options])
def test_example_without_its_data_says_what_to_put_there(name: str, tmp_path: Path) -> None:
    competition = FILES[name]
    options = competition.dataset.options | {"root": str(tmp_path)}
    dataset = competition.dataset.model_copy(update={"options": options})
    with pytest.raises(InvalidDataset, match="Put there"):
        task_preparation(competition.task.kind).open_dataset(competition.model_copy(update={"dataset": dataset}))


@pytest.mark.parametrize("name", ["digits", "confusion", "faces", "breast-cancer"])
def test_examples_without_a_download_can_be_cut(name: str) -> None:
    example = FILES[name]
    dataset = open_dataset(example.dataset)
    for seed in range(20):  # a secret one is drawn for each competition
        competition = example.model_copy(update={"splits": example.splits.model_copy(update={"seed": seed})})
        public, private = (cut_dataset(dataset, competition, visibility) for visibility in ("public", "private"))
        assert 0 < len(public.forget) < 0.2 * len(public.train)
        assert not set(public.forget) & set(private.forget)


def test_digits_are_cut_as_the_demo_says() -> None:
    competition = FILES["digits"]
    cut = cut_dataset(open_dataset(competition.dataset), competition, "public")
    assert (len(cut.retain), len(cut.forget), len(cut.validation), len(cut.test)) == (700, 100, 180, 719)
    assert competition.n_models == 512


def test_confused_digits_are_learnt_by_originals_only(tmp_path: Path) -> None:
    whole = FILES["confusion"]
    quick = whole.training.model_copy(update={"epochs": 5})
    competition = whole.model_copy(update={"n_models": 4, "training": quick})
    prepare_split(competition, "public", tmp_path)
    assert verify_split(tmp_path) == []
    outputs = read_outputs(tmp_path)
    assert (outputs.confidences > 0).mean() < 0.3  # the true class wins over the swapped label


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
def test_recipe_cuts_and_trains_pictures_of_its_shape(name: str) -> None:
    file = FILES[name]
    if file.network.name == "tiny_vit":
        pytest.importorskip("timm")
    shape, n_classes = SHAPES[file.dataset.name]
    n_images = 10 * n_classes
    images = np.random.default_rng(0).integers(0, 256, (n_images, *shape), dtype=np.uint8)
    dataset = ImageDataset(images, np.arange(n_images) // 2 % n_classes, np.arange(n_images) // 2, n_classes=n_classes)
    seeded = file.splits.model_copy(update={"seed": 1})
    cut = cut_dataset(dataset, file.model_copy(update={"splits": seeded}), "public")
    network = describe_network(file, dataset)
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
