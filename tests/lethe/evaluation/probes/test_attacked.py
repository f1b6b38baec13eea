"""Attacks on a model's knowledge of the forget set."""

import numpy as np
import pytest
import torch
from torch import nn

from lethe.evaluation.probes.attacked import attacked_knowledge, loss_barrier
from lethe.evaluation.probes.examples import ImageExamples
from lethe.metrics.weights.probes import ATTACKS
from lethe.networks.rounding import prune, quantize


def examples(n: int = 80, *, seed: int = 0) -> ImageExamples:
    images = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
    return ImageExamples(images, (images[:, 0] > 0).long())


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def trained(net: nn.Module, on: ImageExamples) -> nn.Module:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        on.loss(net, torch.arange(len(on))).backward()
        optimizer.step()
    return net


@pytest.fixture(scope="module")
def knowing() -> nn.Module:
    return trained(network(), examples())


def attacked(net: nn.Module, original: nn.Module, **changed: object) -> dict[str, float]:
    given = {"forget": examples(), "retain": examples(seed=1), "learning_rate": 1.0} | changed
    found = attacked_knowledge(net, net.state_dict(), original=original.state_dict(), **given)
    return dict(zip(ATTACKS, found.tolist(), strict=True))


def test_model_without_knowledge_learns_from_half_of_the_set(knowing: nn.Module) -> None:
    before = attacked(network(3), knowing)
    assert before["none"] < 0.8
    assert before["relearn-5"] > before["none"]
    assert before["retain-3"] > before["none"], "the retain set teaches the same rule here"


def test_original_is_reached_at_the_end_of_the_way(knowing: nn.Module) -> None:
    found = attacked(knowing, knowing)
    assert found["interpolate-25"] == found["interpolate-50"] == found["none"] == pytest.approx(1.0, abs=0.03)


def test_network_and_generators_stay_as_they_are(knowing: nn.Module) -> None:
    before = {name: value.clone() for name, value in knowing.state_dict().items()}
    original = network(2)
    state = torch.get_rng_state()
    first = attacked(knowing, original)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in knowing.state_dict().items())
    assert first == attacked(knowing, original)


def test_one_forget_example_is_asked_and_nothing_relearned(knowing: nn.Module) -> None:
    found = attacked(knowing, knowing, forget=examples(1))
    assert found["relearn-5"] == found["none"]


def test_barrier_of_a_model_to_itself_is_zero_and_to_a_stranger_is_not(knowing: nn.Module) -> None:
    same = loss_barrier(knowing, knowing.state_dict(), original=knowing.state_dict(), forget=examples())
    assert same == pytest.approx(0.0, abs=1e-6)
    other = trained(network(5), examples())
    apart = loss_barrier(knowing, other.state_dict(), original=knowing.state_dict(), forget=examples())
    assert apart >= 0.0


def test_barrier_by_hand() -> None:
    """Two mirrored layers of a linear network know the same; half-way between them nothing is left."""
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    weights = {"0.weight": torch.tensor([[1.0]]), "1.weight": torch.tensor([[-4.0], [4.0]])}
    mirrored = {name: -value for name, value in weights.items()}
    forget = ImageExamples(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0]))
    found = loss_barrier(net, weights, original=mirrored, forget=forget)
    assert found == pytest.approx(np.log(2.0) - np.log1p(np.exp(-8.0)), abs=1e-6)


@pytest.mark.parametrize("layer", [nn.Linear(7, 3), nn.Conv2d(2, 3, 3)])
@pytest.mark.parametrize("bits", [8, 4])
def test_rounded_weights_lie_on_a_grid_per_output_channel(layer: nn.Module, bits: int) -> None:
    old = layer.weight.detach().clone().flatten(1)
    quantize(nn.Sequential(layer), bits=bits)
    new = layer.weight.detach().flatten(1)
    spacing = old.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    assert (new / spacing - (new / spacing).round()).abs().max() < 1e-3
    assert ((new - old).abs() <= spacing * 0.5001).all()


def test_constant_zero_weights_stay_zero() -> None:
    layer = nn.Linear(4, 2)
    nn.init.zeros_(layer.weight)
    quantize(nn.Sequential(layer), bits=4)
    assert not layer.weight.any()


def test_smallest_weights_are_pruned_in_each_layer() -> None:
    layer = nn.Linear(4, 1, bias=False)
    layer.weight.data = torch.tensor([[0.1, -3.0, 0.2, 2.0]])
    prune(nn.Sequential(layer), share=0.5)
    assert layer.weight.tolist() == [[0.0, -3.0, 0.0, 2.0]]


def test_equal_weights_are_pruned_to_the_share() -> None:
    layer = nn.Linear(10, 1, bias=False)
    nn.init.ones_(layer.weight)
    prune(nn.Sequential(layer), share=0.8)
    assert int((layer.weight == 0).sum()) == 8
