"""What is captured: no step that breaks off or draws random numbers; models that do not fit go in smaller groups."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lethe.competition.file import Training
from lethe.networks.builders import build
from lethe.training import cuda_graph_training
from lethe.training.cuda_graph_training import StepRefused, captured, draws_random_numbers, rehearse, train_graphed
from lethe.training.trainer import TrainingJob

pytestmark = pytest.mark.usefixtures("trusted_network_source")

BRANCH = """
from torch import nn
class Net(nn.Module):
    def forward(self, x):
        if x.wait():
            return x
        return -x
def build(input_shape, n_classes):
    return Net()
"""
WAITED = RuntimeError("called a synchronizing CUDA operation")


class Device:
    """What torch is told about a device that is not there."""

    def __init__(self) -> None:
        self.modes: list[str | int] = []
        self.ended: list[tuple[int, tuple[int, int]]] = []
        self.at_the_end: Exception | None = None
        self.has_ended_itself = False

    @contextmanager
    def graph(self, graph: object, *, pool: tuple[int, int], stream: object) -> Iterator[None]:
        try:
            yield
        finally:
            if self.at_the_end:
                raise self.at_the_end

    def end(self, number: int, pool: tuple[int, int]) -> None:
        self.ended.append((number, pool))
        if self.has_ended_itself:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    standing_in = Device()
    cuda: dict[str, Any] = {
        "CUDAGraph": SimpleNamespace,
        "graph": standing_in.graph,
        "graph_pool_handle": lambda: (0, 7),
        "current_device": lambda: 3,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": standing_in.modes.append,
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", standing_in.end, raising=False)
    return standing_in


STREAM: Any = object()


def waits() -> bool:
    raise WAITED.with_traceback(None)


def raising(error: Exception) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def test_capturable_step_becomes_a_graph(device: Device) -> None:
    made: list[int] = []
    assert isinstance(captured(lambda: made.append(1), STREAM), SimpleNamespace)
    assert made == [1]
    assert device.ended == []


def test_rehearsal_names_the_waiting_line_and_resets_the_check(device: Device) -> None:
    net = build({"name": "module", "options": {"source": BRANCH}, "input_shape": [1, 2, 2], "n_classes": 2})
    with pytest.raises(
        StepRefused, match=r"^RuntimeError: called a synchronizing .* \(line 5 of the network's source\)$"
    ):
        rehearse(lambda: net(SimpleNamespace(wait=waits)))
    assert device.modes == ["error", 0]


def test_another_error_of_a_rehearsal_is_no_refusal(device: Device) -> None:
    with pytest.raises(ValueError, match="shapes"):
        rehearse(raising(ValueError("shapes")))
    with pytest.raises(torch.OutOfMemoryError):
        rehearse(raising(torch.OutOfMemoryError("CUDA out of memory")))
    assert device.modes == ["error", 0, "error", 0]


@pytest.mark.parametrize("has_ended_itself", [False, True])
def test_refused_capture_is_ended_in_the_allocator(device: Device, has_ended_itself: bool) -> None:
    """The error at its end only says that there was one before; releases of torch differ in who ends it."""
    device.at_the_end = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    device.has_ended_itself = has_ended_itself
    with pytest.raises(
        StepRefused, match=r"^RuntimeError: CUDA error: operation not permitted when stream is capturing$"
    ):
        captured(raising(RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")), STREAM)
    assert device.ended == [(3, (0, 7))]


def test_a_capture_whose_end_alone_fails_is_refused(device: Device) -> None:
    device.at_the_end = RuntimeError("unjoined work")
    with pytest.raises(StepRefused, match="unjoined work"):
        captured(lambda: None, STREAM)


def test_a_lack_of_memory_in_a_capture_is_raised_as_it_is(device: Device) -> None:
    device.at_the_end = RuntimeError("operation failed due to a previous error during capture")
    with pytest.raises(RuntimeError, match="previous error") as raised:
        captured(raising(torch.OutOfMemoryError("CUDA out of memory")), STREAM)
    assert not isinstance(raised.value, StepRefused)
    assert device.ended == [(3, (0, 7))]


def test_a_refusal_keeps_nothing_of_the_broken_step_alive(device: Device) -> None:
    error = ValueError("no")
    with pytest.raises(StepRefused) as raised:
        captured(raising(error), STREAM)
    assert error.__traceback__ is None
    assert raised.value.__suppress_context__


OWN_DROPOUT = """
from torch import nn
from torch.nn import functional
class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.last = nn.Linear(768, n_classes)
    def forward(self, x):
        return self.last(functional.dropout(x.flatten(1), 0.1, self.training))
def build(input_shape, n_classes):
    return Net(n_classes)
"""


OWN_CHOICE = """
import random
import numpy
from torch import nn
class Net(nn.Linear):
    def forward(self, x):
        y = super().forward(x.flatten(1))
        return y if DRAW < 0.5 else 2 * y
def build(input_shape, n_classes):
    return Net(768, n_classes)
"""


@pytest.mark.parametrize(
    ("name", "options", "draws"),
    [
        ("resnet20", {}, False),
        ("vit", {}, False),
        ("mobilenet_v3_small", {}, True),
        ("vit_b_32", {"image_size": 32}, False),
        ("vit_b_32", {"image_size": 32, "attention_dropout": 0.1}, True),
        ("module", {"source": OWN_DROPOUT}, True),
        ("module", {"source": OWN_CHOICE.replace("DRAW", "random.random()")}, True),
        ("module", {"source": OWN_CHOICE.replace("DRAW", "numpy.random.random()")}, True),
        ("module", {"source": OWN_CHOICE.replace("DRAW", "0.1")}, False),
    ],
)
def test_what_draws_random_numbers_is_known_by_trying(name: str, options: dict[str, Any], draws: bool) -> None:
    size = 32 if name == "vit_b_32" else 16
    before = torch.get_rng_state()
    assert (
        draws_random_numbers({"name": name, "options": options, "input_shape": [3, size, size], "n_classes": 4})
        is draws
    )
    assert torch.equal(before, torch.get_rng_state())


LACK = torch.OutOfMemoryError("too large")
AT_END_OF_CAPTURE = RuntimeError("operation failed due to a previous error during capture")
AT_END_OF_CAPTURE.__context__ = torch.OutOfMemoryError()


@pytest.mark.parametrize(
    ("n_models", "fits", "error", "tried"),
    [
        (5, 2, LACK, [5, 2, 2, 1]),
        (2, 1, AT_END_OF_CAPTURE, [2, 1, 1]),
        (2, 0, LACK, [2, 1]),  # one model alone does not fit
        (2, 1, RuntimeError("shapes do not match"), [2]),
    ],
)
def test_models_that_do_not_fit_train_in_smaller_groups(monkeypatch, n_models, fits, error, tried):
    seen: list[int] = []

    def group(_: TrainingJob, seeds: dict[int, int], *__: object, **___: object) -> dict[int, dict[str, torch.Tensor]]:
        seen.append(len(seeds))
        if len(seeds) > fits:
            raise error
        return {index: {"seed": torch.tensor(seed)} for index, seed in seeds.items()}

    monkeypatch.setattr(cuda_graph_training, "_train_group", group)
    images = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    network = {"name": "mlp", "options": {}, "input_shape": [1, 2, 2], "n_classes": 2}
    recipe = Training(epochs=1, learning_rate=0.01)
    job = TrainingJob.on_device(network, recipe, images, torch.arange(4) % 2, device="cpu")
    seeds = {index: 10 + index for index in range(n_models)}
    with nullcontext() if sum(tried[1:]) == n_models else pytest.raises(type(error), match=str(error)):
        assert train_graphed(job, seeds, at_once=8)["seed"].tolist() == list(seeds.values())
    assert seen == tried
