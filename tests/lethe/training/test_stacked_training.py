from typing import Any

import pytest
import torch

from lethe.competition.file import Training
from lethe.preparation.split_parts import measure_retraining
from lethe.training.many_models import can_stack, train_in_turn, train_stacked
from lethe.training.trainer import TrainingJob, split_batches, train_model

NETWORK = {"name": "mlp", "options": {"hidden": [6, 5]}, "input_shape": [1, 3, 3], "n_classes": 3, "input_scale": 0.01}


CNN = NETWORK | {"name": "small_cnn", "options": {"widths": [4, 5]}}


def job(network: dict[str, Any] = NETWORK, **recipe: Any) -> TrainingJob:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (50, 1, 3, 3), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 3, (50,), generator=generator)
    defaults: dict[str, Any] = {"epochs": 3, "learning_rate": 0.05, "batch_size": 16}
    return TrainingJob.on_device(network, Training(**(defaults | recipe)), images, labels, device="cpu")


def test_a_last_image_alone_joins_the_batch_before_it() -> None:
    assert [len(batch) for batch in split_batches(torch.arange(49), 16)] == [16, 16, 17]
    assert [batch.shape for batch in split_batches(torch.zeros(3, 33), 16)] == [(3, 16), (3, 17)]
    assert [len(batch) for batch in split_batches(torch.arange(50), 16)] == [16, 16, 16, 2]
    assert [len(batch) for batch in split_batches(torch.arange(3), 1)] == [1, 1, 1]
    assert [len(batch) for batch in split_batches(torch.arange(1), 16)] == [1]
    for size in (1, 7, 16, 48, 49, 50, 64):
        trained = job(batch_size=size)
        assert trained.steps_per_epoch == len(split_batches(torch.arange(50), size)), size


def test_batch_norm_survives_an_epoch_ending_in_one_image() -> None:
    network = NETWORK | {"name": "resnet18", "options": {}}
    train_model(job(network, batch_size=49, epochs=1), 0)


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"momentum": 0.0, "weight_decay": 0.01},
        {"optimizer": "adam", "learning_rate": 0.01},
        {"optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1},
        {"class_weights": "inverse-frequency"},
        {"label_smoothing": 0.1},
        {"schedule": "cosine", "warmup_epochs": 1},
        {"schedule": "step", "milestones": (1, 2)},
        {"schedule": "cosine", "batch_size": 49},
    ],
)
@pytest.mark.parametrize("network", [NETWORK, CNN], ids=["mlp", "small_cnn"])
def test_stacked_models_are_those_of_the_plain_loop(network: dict[str, Any], recipe: dict[str, Any]) -> None:
    stacked = train_stacked(job(network, **recipe), [11, 12])
    plain = train_in_turn(job(network, **recipe), {0: 11, 1: 12})
    assert list(stacked) == list(plain)
    for name in plain:
        assert torch.allclose(stacked[name], plain[name], atol=2e-5), name


def test_a_models_bits_do_not_depend_on_its_company() -> None:
    alone = train_stacked(job(), [5])
    together = train_stacked(job(), [*range(100, 165), 5])
    assert all(torch.equal(alone[name][0], together[name][65]) for name in alone)


def test_epochs_are_counted_once_for_each_wanted_model() -> None:
    counted: list[int] = []
    train_stacked(job(), [1, 2, 3], on_epoch=counted.append)
    assert sum(counted) == 9


def test_training_changes_with_the_seed_only() -> None:
    first, again, other = (train_model(job(), seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["1.weight"], other["1.weight"])


def test_training_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    train_model(job(), 1)
    assert torch.equal(torch.rand(1), expected)


def test_augmented_recipes_are_not_stacked() -> None:
    assert can_stack(job())
    assert not can_stack(job(augmentation="flip"))


def test_convolutions_are_stacked_on_small_pictures_only() -> None:
    assert can_stack(job(CNN))
    pictures, labels = torch.zeros(2, 1, 32, 32, dtype=torch.uint8), torch.zeros(2)
    large = TrainingJob.on_device({**CNN, "input_shape": [1, 32, 32]}, job().recipe, pictures, labels, device="cpu")
    assert not can_stack(large)


def test_networks_that_leave_the_cache_are_not_stacked() -> None:
    assert not can_stack(job(NETWORK | {"options": {"hidden": [8000]}}))


def test_stacked_training_gives_the_fastest_retraining() -> None:
    found = measure_retraining(job(batch_size=1, epochs=8), 0)
    assert 0 < found["fastest_cpu_s"] <= found["retraining_cpu_s"]


def test_network_that_is_not_stacked_has_the_plain_loop_alone() -> None:
    found = measure_retraining(job(NETWORK | {"name": "small_cnn", "options": {"widths": [4]}}, augmentation="flip"), 0)
    assert found["fastest_cpu_s"] == found["retraining_cpu_s"]
