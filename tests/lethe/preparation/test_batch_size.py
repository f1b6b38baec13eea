from contextlib import nullcontext
from typing import Any

import pytest
import torch

from lethe.data.stored_sets import StoredSet
from lethe.preparation import image_task
from lethe.preparation.image_task import choose_batch_size

NETWORK = {"name": "mlp", "options": {}, "input_shape": [1, 4, 4], "n_classes": 2}


def sets(n_images: int, side: int = 4) -> dict[str, StoredSet]:
    numbers = torch.arange(n_images)
    return {"retain": StoredSet(torch.zeros(n_images, 1, side, side, dtype=torch.uint8), numbers % 2, numbers, numbers)}


def choose(monkeypatch: pytest.MonkeyPatch, rates: dict[int, float | None], n_images: int = 10_000) -> int:
    """Choose on a device with these rates; None: out of memory."""

    def rate(*_: Any, batch_size: int, **__: Any) -> float:
        value = rates[batch_size]
        if value is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return value

    monkeypatch.setattr(image_task, "_images_per_second", rate)
    return choose_batch_size(NETWORK, sets(n_images), device="cuda", precision="float32")


def test_the_fastest_batch_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: dict[int, float | None] = {64: 1, 128: 2, 256: 4, 512: 8, 1024: 9, 2048: 5, 4096: 5}
    assert choose(monkeypatch, rates) == 1024


def test_a_batch_hardly_faster_is_not_worth_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: dict[int, float | None] = {64: 1, 128: 2, 256: 2.05, 512: 2.06, 1024: 2.07, 2048: 2.08, 4096: 2.09}
    assert choose(monkeypatch, rates) == 128


def test_a_batch_that_does_not_fit_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, {64: 1, 128: 2, 256: 3, 512: None}) == 256


@pytest.mark.parametrize(("message", "is_lack"), [("CUBLAS_STATUS_ALLOC_FAILED", True), ("shapes differ", False)])
def test_a_library_that_finds_no_memory_ends_it_too(monkeypatch, message, is_lack):
    def rate(*_: Any, batch_size: int, **__: Any) -> float:
        if batch_size > 64:
            raise RuntimeError(message)
        return 1.0

    monkeypatch.setattr(image_task, "_images_per_second", rate)
    with nullcontext() if is_lack else pytest.raises(RuntimeError, match=message):
        assert choose_batch_size(NETWORK, sets(1000), device="cuda", precision="float32") == 64


def test_no_batch_larger_than_the_set_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, {64: 1, 128: 2, 256: 3}, n_images=200) == 256


@pytest.mark.parametrize(("side", "expected"), [(8, 1024), (32, 256)])
def test_on_a_cpu_it_is_a_rule(side: int, expected: int) -> None:
    assert choose_batch_size(NETWORK, sets(10, side), device="cpu", precision="float32") == expected
