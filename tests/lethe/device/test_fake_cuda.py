"""CUDA tensors without a driver: torch's FakeTensorMode knows shapes and devices, and refuses tensors of the CPU.

It has no values and no backward pass; `test_second_device.py` has both, under another device's name.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from lethe.competition.file import Training
from lethe.data.stored_sets import ImageBatches
from lethe.networks.builders import build, to_inputs
from lethe.training import many_models
from tests.lethe.methods.tiny_data import N_CLASSES, NETWORKS, network_description

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """There are no values: what draws until they fit draws once."""
    monkeypatch.setattr(nn.init, "trunc_normal_", nn.init.normal_)
    with FakeTensorMode():
        yield


def network(kind: str) -> nn.Module:
    with CUDA:
        return build(network_description(kind)).eval()


def pictures(kind: str, *, device: str = "cuda", n: int = 6) -> Tensor:
    return torch.zeros((n, *network_description(kind)["input_shape"]), dtype=torch.uint8, device=device)


@pytest.mark.parametrize("kind", NETWORKS)
def test_network_answers_on_the_gpu_and_refuses_the_cpu(kind: str) -> None:
    net, description = network(kind), network_description(kind)
    logits = net(to_inputs(pictures(kind), description))
    assert (logits.device.type, logits.shape) == ("cuda", (6, N_CLASSES))
    with pytest.raises(RuntimeError, match="device"):
        net(to_inputs(pictures(kind, device="cpu"), description))


def test_optimizer_steps_on_the_gpu() -> None:
    net = network("small_cnn")
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in (torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.optim.AdamW(net.parameters())):
        optimizer.step()
    assert {parameter.device.type for parameter in net.parameters()} == {"cuda"}


@pytest.mark.parametrize("form", ["inputs on the device", "bytes on the device"])
def test_batches_of_images_are_on_the_gpu(form: Any) -> None:
    images = pictures("small_cnn", device="cpu", n=7)
    kept = ImageBatches(images, network_description("small_cnn"), CUDA, form=form)
    assert [(batch.device.type, len(batch)) for batch in kept.in_order(4)] == [("cuda", 4), ("cuda", 3)]
    positions = [torch.tensor([0, 2], device=CUDA)]
    assert [batch.device.type for batch in kept.at([torch.tensor([0, 2])], positions)] == ["cuda"]


def stacked(kind: str) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(torch.stack([value] * 3)) for name, value in network(kind).state_dict().items()}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_stacked_perceptrons_take_their_steps_on_the_gpu(optimizer):
    state, images = stacked("mlp"), to_inputs(pictures("mlp"), network_description("mlp"))
    shares = torch.full((3, 6, N_CLASSES), 1 / 6, device=CUDA)
    take_step = many_models._mlp_steps(state, Training(epochs=1, learning_rate=0.1, optimizer=optimizer))
    take_step(images.expand(3, *images.shape), shares, 0.1)
    for parameter in state.values():
        assert parameter.grad is not None
        assert (parameter.grad.device.type, parameter.grad.shape) == ("cuda", parameter.shape)
    with pytest.raises(RuntimeError, match="device"):
        take_step(images.expand(3, *images.shape), shares.cpu(), 0.1)


def test_stacked_convolutions_answer_on_the_gpu() -> None:
    images = to_inputs(pictures("small_cnn"), network_description("small_cnn"))
    logits = many_models._small_cnn_forward(stacked("small_cnn"), images.expand(3, *images.shape))
    assert (logits.device.type, logits.shape) == ("cuda", (3, 6, N_CLASSES))
