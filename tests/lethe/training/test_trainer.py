"""Training of image networks: recipes, checkpoints, and the one network that all sides build."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from lethe.competition.file import Training
from lethe.data.files import write_json, write_tensors
from lethe.data.stored_sets import SET_PATHS, StoredSet
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.metrics.scoring.arrays import logit_scaled_confidences
from lethe.networks.builders import build, to_inputs
from lethe.runtime.data_loaders import load_data
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.many_models import train_in_turn, train_or_resume
from lethe.training.trainer import (
    ModelTraining,
    TrainingJob,
    augment,
    class_weights,
    learning_rate,
    make_optimizer,
    mix,
)

pytestmark = pytest.mark.usefixtures("trusted_network_source")


def recipe(**changes: Any) -> Training:
    return Training(**({"epochs": 10, "learning_rate": 0.4} | changes))


def rates(training: Training, *, epochs: int = 10, steps: int = 2) -> list[float]:
    return [learning_rate(training, step=step, steps_per_epoch=steps) for step in range(epochs * steps)]


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, [0.4] * 20),
        ({"schedule": "step", "milestones": (3, 6), "gamma": 0.5}, [0.4] * 6 + [0.2] * 6 + [0.1] * 8),
        ({"warmup_epochs": 2}, [0.1, 0.2, 0.3, 0.4, 0.4]),
    ],
)
def test_rate_stays_falls_after_each_milestone_or_rises_at_first(changes: dict[str, Any], first: list[float]) -> None:
    assert rates(recipe(**changes))[: len(first)] == pytest.approx(first)


def test_cosine_rate_is_half_in_the_middle_and_near_zero_at_end() -> None:
    seen = rates(recipe(schedule="cosine"), steps=100)
    assert seen[0] == pytest.approx(0.4)
    assert seen[500] == pytest.approx(0.2)
    assert seen[-1] < 1e-5
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize(
    "wrong",
    [{"schedule": "step"}, {"schedule": "step", "milestones": (10,)}, {"warmup_epochs": 10}, {"milestones": (0,)}],
)
def test_a_schedule_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        recipe(**wrong)


def test_class_weights_are_reciprocal_counts() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1])
    weights = class_weights(recipe(class_weights="inverse-frequency"), labels, 3)
    assert weights is not None
    assert weights.tolist() == [0.25, 1.0, 1.0]
    assert class_weights(recipe(), labels, 3) is None


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)])
def test_optimizer_takes_the_recipes_numbers(name: str, kind: type) -> None:
    optimizer = make_optimizer(recipe(optimizer=name, weight_decay=0.3), [torch.nn.Parameter(torch.zeros(1))])
    assert isinstance(optimizer, kind)
    assert optimizer.param_groups[0]["weight_decay"] == 0.3


def test_flip_mirrors_about_half_of_the_images() -> None:
    images = torch.arange(4.0).view(1, 1, 1, 4).expand(400, 1, 1, 4)
    flipped = augment(recipe(augmentation="flip"), images, torch.Generator().manual_seed(0))
    mirrored = int((flipped[:, 0, 0, 0] == 3).sum())
    assert 150 < mirrored < 250
    assert all(row in ([0, 1, 2, 3], [3, 2, 1, 0]) for row in flipped[:, 0, 0].tolist())


def test_crop_shifts_by_at_most_four_pixels_and_fills_with_zeros() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 4] = 1.0
    shifted = augment(recipe(augmentation="crop-flip"), image.expand(300, 1, 9, 9), torch.Generator().manual_seed(0))
    rows = {int(at[1]) for at in shifted[:, 0].nonzero()}
    assert rows == set(range(9))
    assert shifted.shape == (300, 1, 9, 9)
    assert (shifted.sum(dim=(1, 2, 3)) == 1).all()


@pytest.mark.parametrize("mixing", ["cutmix", "mixup"])
def test_half_of_the_batches_are_mixed(mixing: str) -> None:
    images, labels = torch.rand(8, 1, 6, 6), torch.arange(8) % 4
    torch.manual_seed(0)
    batches = [mix(recipe(mixing=mixing), images, labels, n_classes=4) for _ in range(200)]
    mixed = [shares for _, shares in batches if shares.ndim == 2]
    assert 70 < len(mixed) < 130
    assert all(torch.allclose(shares.sum(dim=1), torch.ones(8)) for shares in mixed)
    assert mix(recipe(), images, labels, n_classes=4)[0] is images


DROPOUT = """
from torch import nn
def build(input_shape, n_classes):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 16, n_classes)
    )
"""
NETWORK = {"name": "module", "options": {"source": DROPOUT}, "input_shape": [1, 6, 6], "n_classes": 3}


def job(**recipe: Any) -> TrainingJob:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 1, 6, 6), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 3, (40,), generator=generator)
    defaults: dict[str, Any] = {"epochs": 4, "learning_rate": 0.01, "batch_size": 16, "augmentation": "flip"}
    return TrainingJob.on_device(
        {**NETWORK, "input_scale": 0.01}, Training(**(defaults | recipe)), images, labels, device="cpu"
    )


class Stopped(Exception):
    pass


def stop_after(epochs: int) -> Any:
    seen = 0

    def on_epoch(n: int) -> None:
        nonlocal seen
        seen += n
        if seen >= epochs:
            raise Stopped

    return on_epoch


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("stopped_after", [1, 3])
def test_a_training_cut_off_ends_in_the_same_bits(tmp_path: Path, optimizer: str, stopped_after: int) -> None:
    whole = train_or_resume(job(optimizer=optimizer), 0, 7)
    with pytest.raises(Stopped):
        train_or_resume(
            job(optimizer=optimizer),
            0,
            7,
            checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=0),
            on_epoch=stop_after(stopped_after),
        )
    counted: list[int] = []
    resumed = train_or_resume(
        job(optimizer=optimizer), 0, 7, checkpoints=TrainingCheckpoints(tmp_path, "d"), on_epoch=counted.append
    )
    assert counted == [stopped_after] + [1] * (4 - stopped_after)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_finished_models_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = {3: 30, 4: 40, 5: 50}
    whole = train_in_turn(job(), seeds)
    with pytest.raises(Stopped):
        train_in_turn(job(), seeds, checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=0), on_epoch=stop_after(9))
    started: list[int] = []
    start = ModelTraining.start
    monkeypatch.setattr(ModelTraining, "start", lambda j, seed: started.append(seed) or start(j, seed))
    resumed = train_in_turn(job(), seeds, checkpoints=TrainingCheckpoints(tmp_path, "d"))
    assert started == [50]
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_checkpoints_of_other_data_are_not_taken_over(tmp_path: Path) -> None:
    kept = TrainingCheckpoints(tmp_path, "old data", every_s=0)
    kept.model_done(0, {"x": torch.zeros(1)})
    assert kept.finished(0) is not None
    assert TrainingCheckpoints(tmp_path, "new data").finished(0) is None


def test_quick_training_writes_nothing(tmp_path: Path) -> None:
    train_or_resume(job(), 0, 7, checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=60))
    assert list(tmp_path.iterdir()) == []


def test_clear_removes_what_a_shards_file_holds(tmp_path: Path) -> None:
    checkpoints = TrainingCheckpoints(tmp_path, "d", every_s=0)
    train_in_turn(job(), {0: 1, 1: 2}, checkpoints=checkpoints)
    assert list(tmp_path.iterdir()) != []
    checkpoints.clear(range(2))
    assert list(tmp_path.iterdir()) == []


def test_dropout_is_a_function_of_the_models_seed() -> None:
    torch.manual_seed(1)
    first = train_or_resume(job(), 0, 7)
    torch.manual_seed(2)
    second = train_or_resume(job(), 0, 7)
    assert all(torch.equal(first[name], second[name]) for name in first)


OWN = """
from torch import nn

def build(input_shape, n_classes, *, width=4):
    return nn.Sequential(nn.Conv2d(input_shape[0], width, 3), nn.BatchNorm2d(width), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, n_classes))
"""
NETWORKS: dict[str, tuple[str, list[int], dict[str, Any]]] = {
    "an organiser's own": ("module", [2, 12, 12], {"source": OWN, "width": 6}),
    "ResNet-18 on grey pictures": ("resnet18", [1, 32, 32], {}),
    "ResNet-18 with five channels": ("resnet18", [5, 16, 24], {"stem": "small"}),
    "a small transformer": ("vit", [3, 16, 16], {"width": 24, "depth": 2}),
    "TinyViT": ("tiny_vit", [1, 32, 32], {}),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_training_sandbox_and_evaluation_have_one_network(case: str, tmp_path: Path) -> None:
    name, shape, options = NETWORKS[case]
    if name == "tiny_vit":
        pytest.importorskip("timm")
    network = {"name": name, "options": options, "input_shape": shape, "n_classes": 3, "input_scale": 1 / 255}
    numbers = torch.arange(6)
    stored = StoredSet(torch.randint(0, 256, (6, *shape), dtype=torch.uint8), numbers % 3, numbers, numbers)
    recipe = Training(epochs=1, batch_size=3, learning_rate=0.01)
    training = ModelTraining.start(
        TrainingJob.on_device(network, recipe, stored.images, stored.labels, device="cpu"), 1
    )
    training.run_epoch()
    trained = training.state()
    write_json(tmp_path / "visible" / "network.json", network | {"input_shift": 0.0})
    write_tensors(tmp_path / "visible" / "original_model.safetensors", trained)
    for set_name in ("retain", "forget", "validation"):
        stored.write(tmp_path / SET_PATHS[set_name])
    seen = load_data(tmp_path / "visible")
    inside = build(seen.network)
    inside.load_state_dict(seen.original_state)
    with torch.inference_mode():
        logits = inside.eval()(to_inputs(stored.images, seen.network)).numpy()
    expected = logit_scaled_confidences(logits, stored.labels.numpy())
    outputs = SplitEvaluator(network, dict.fromkeys(("retain", "forget", "test"), stored)).evaluate_state(trained)
    assert outputs.confidences == pytest.approx(expected, rel=1e-4, abs=1e-3)  # another network would be off by units
    assert list(inside.state_dict()) == list(trained)
