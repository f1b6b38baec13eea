from typing import Any

import pytest
import torch
from pydantic import ValidationError

from lethe.competition.file import Training
from lethe.training.trainer import augment, class_weights, learning_rate, make_optimizer, mix


def recipe(**changes: Any) -> Training:
    return Training(**({"epochs": 10, "learning_rate": 0.4} | changes))


def rates(training: Training, *, epochs: int = 10, steps: int = 2) -> list[float]:
    return [learning_rate(training, step=step, steps_per_epoch=steps) for step in range(epochs * steps)]


def test_constant_rate() -> None:
    assert set(rates(recipe())) == {0.4}


def test_step_rate_falls_after_each_milestone() -> None:
    seen = rates(recipe(schedule="step", milestones=(3, 6), gamma=0.5))
    assert seen == pytest.approx([0.4] * 6 + [0.2] * 6 + [0.1] * 8)


def test_cosine_rate_is_half_in_the_middle_and_near_zero_at_end() -> None:
    seen = rates(recipe(schedule="cosine"), steps=100)
    assert seen[0] == pytest.approx(0.4)
    assert seen[500] == pytest.approx(0.2)
    assert seen[-1] < 1e-5
    assert seen == sorted(seen, reverse=True)


def test_warm_up_rises_to_the_full_rate() -> None:
    assert rates(recipe(warmup_epochs=2))[:5] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


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
