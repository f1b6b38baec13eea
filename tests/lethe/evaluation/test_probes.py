"""Probes of a model's weights: attacks, perturbations, saliency maps, relearning."""

import numpy as np
import pytest
import torch
from torch import nn

from lethe.device import prune, quantize
from lethe.evaluation.probes.model_probes import (
    ImageExamples,
    attacked_knowledge,
    loss_barrier,
    mean_loss,
    relearn_epochs,
)
from lethe.evaluation.probes.saliency import saliency_arrays, saliency_maps
from lethe.evaluation.probes.split_probes import parameter_arrays, perturbed_accuracy, weight_distances
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.forgetting.probes import ATTACKS


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


class Sign(torch.nn.Module):
    """Calls an image class 1 if its mean is above the threshold."""

    def __init__(self, threshold: float = 0.0) -> None:
        super().__init__()
        self.threshold = torch.nn.Parameter(torch.tensor(threshold))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        level = x.flatten(1).mean(dim=1) - self.threshold
        return torch.stack([-level, level], dim=1)


def probe(images: torch.Tensor, labels: torch.Tensor, **options) -> np.ndarray:
    net = Sign()
    return perturbed_accuracy(net, net.state_dict(), images, labels, input_scale=1.0, copies=50, **options)


@pytest.fixture
def images():
    near, far = torch.full((1, 1, 3, 3), 0.01), torch.full((1, 1, 3, 3), 100.0)
    return torch.cat([near, far])


def test_radius_zero_is_plain_accuracy(images):
    assert probe(images, torch.tensor([1, 0]), radii=(0.0,)).tolist() == [[1.0, 0.0]]


def test_example_near_the_boundary_is_lost_first(images):
    shares = probe(images, torch.tensor([1, 1]), radii=(0.0, 0.5))
    assert shares.shape == (2, 2)
    assert 0.2 < shares[1, 0] < 0.8
    assert shares[1, 1] == 1.0


def test_equal_seeds_give_equal_perturbations(images):
    labels = torch.tensor([1, 1])
    first, again, other = (probe(images, labels, radii=(0.5,), seed=seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def linear(weight: torch.Tensor) -> nn.Module:
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(weight)
    return net


WEIGHT = torch.tensor([[1.0, -2.0, 0.0, 0.5], [-1.0, 3.0, 0.25, 0.0]])


def test_map_of_a_linear_network_is_the_predicted_rows_magnitude():
    net = linear(WEIGHT)
    images = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])  # predicted 0 and 1
    found = saliency_maps(net, net.state_dict(), images)
    np.testing.assert_array_equal(found, WEIGHT.abs().numpy())


def test_batches_and_training_mode_change_nothing():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))
    net.train()
    images = torch.randn(7, 1, 2, 2)
    whole = saliency_maps(net, net.state_dict(), images)
    parts = saliency_maps(net, net.state_dict(), images, batch=2)
    np.testing.assert_allclose(whole, parts, rtol=1e-6)
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())


def test_arrays_are_of_every_model_and_set():
    net = linear(WEIGHT)
    models = [net.state_dict(), linear(2 * WEIGHT).state_dict()]
    sets = {"forget": torch.ones(3, 2, 2), "retain": torch.ones(5, 2, 2), "test": torch.ones(2, 2, 2)}
    found = saliency_arrays(net, models, sets)
    assert {name: each.shape for name, each in found.items()} == {
        "forget_saliency": (2, 3, 4), "retain_saliency": (2, 5, 4), "test_saliency": (2, 2, 4),
    }  # fmt: skip
    np.testing.assert_array_equal(found["forget_saliency"][1], 2 * found["forget_saliency"][0])


def weights_network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def states(*seeds: int) -> list[dict[str, torch.Tensor]]:
    return [weights_network(seed).state_dict() for seed in seeds]


def test_buffers_are_no_parameters():
    arrays = parameter_arrays(states(1)[0], weights_network(0))
    assert set(arrays) == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}


def test_distances_equal_those_of_the_parameter_vectors():
    first, second = weights_network(1), weights_network(2)
    found = weight_distances(first, [first.state_dict()], [second.state_dict()])
    vectors = [torch.cat([p.detach().double().flatten() for p in net.parameters()]) for net in (first, second)]
    assert found["weight_distance"].tolist() == pytest.approx([float((vectors[0] - vectors[1]).norm())])
    assert found["weight_norm"].tolist() == pytest.approx([float(vectors[0].norm())])


def test_models_are_paired_by_number_and_one_stands_for_all():
    pairs = weight_distances(weights_network(0), states(1, 2), states(3, 2))["weight_distance"]
    assert pairs[0] > 0.0
    assert pairs[1] == 0.0
    one = weight_distances(weights_network(0), states(1), states(2, 3))
    assert one["weight_distance"].shape == one["weight_norm"].shape == (2,)


def test_half_precision_weights_are_read():
    half = {name: value.half() for name, value in states(1)[0].items()}
    assert weight_distances(weights_network(0), [half], [half])["weight_distance"].tolist() == [0.0]


def test_unequal_numbers_of_models_are_refused():
    with pytest.raises(InvalidMetricInput, match="2 models cannot be paired with 3 retrained ones"):
        weight_distances(weights_network(0), states(1, 2), states(3, 4, 5))


def test_state_dict_without_a_parameter_is_refused():
    state = states(1)[0]
    del state["2.bias"]
    with pytest.raises(InvalidMetricInput, match=r"lacks the parameter 2\.bias"):
        parameter_arrays(state, weights_network(0))


@pytest.fixture
def forget_set():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(90, 5, generator=generator)
    return images, (images[:, 0] > 0).long()


def linear_layer(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Linear(5, 2)


def epochs(net, images, labels, original_loss, **options):
    return relearn_epochs(
        net, net.state_dict(), images, labels, original_loss=original_loss, learning_rate=0.5, **options
    )


def test_model_that_knows_the_set_needs_no_epoch(forget_set):
    net = linear_layer(0)
    assert epochs(net, *forget_set, mean_loss(net, *forget_set)) == 0


def test_lower_aim_takes_longer(forget_set):
    net = linear_layer(0)
    easy, hard = (epochs(net, *forget_set, loss) for loss in (0.4, 0.2))
    assert 0 < easy < hard < 100


def test_model_that_never_gets_there_is_censored(forget_set):
    assert epochs(linear_layer(0), *forget_set, 1e-9, max_epochs=3) == 3


def test_probe_changes_neither_network_nor_weights(forget_set):
    net = linear_layer(0)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    epochs(net, *forget_set, 0.3)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_dropout_is_seeded_and_leaves_torchs_generator_alone(forget_set):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(5, 64), torch.nn.ReLU(), torch.nn.Dropout(0.9), torch.nn.Linear(64, 2))
    found = set()
    for seed in range(4):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.add(epochs(net, *forget_set, 0.25))
        assert torch.equal(torch.get_rng_state(), before)
    assert len(found) == 1
    assert 0 < found.pop() < 100


def test_batch_norm_never_sees_an_example_alone(forget_set):
    images, labels = (part[:65] for part in forget_set)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    assert 0 < epochs(net, images, labels, 0.2) < 100
