"""Probes of weights: distance, residual knowledge, knowledge after attacks, relearning."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from lethe.evaluation.probes.split_probes import perturbed_accuracy
from lethe.metrics import InvalidMetricInput
from lethe.metrics.forgetting.probes import (
    ATTACKS,
    mean_weight_distance,
    relearn_time,
    residual_knowledge,
    robustness,
    weight_distance,
)


def network(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"weight": rng.normal(0, 1, (3, 4)), "bias": rng.normal(0, 1, 3)}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"weight": np.ones((3, 4))}, "differ in the parameters"),
        ({"weight": np.ones((3, 5)), "bias": np.ones(3)}, "differ in the size of weight"),
        ({"weight": np.full((3, 4), np.nan), "bias": np.ones(3)}, "weight of the second network"),
        ({}, "second network has no parameters"),
    ],
)
def test_networks_that_do_not_match_are_refused(second, message):
    with pytest.raises(InvalidMetricInput, match=message):
        weight_distance(network(1), second)


def flat(network: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([part.ravel() for part in network.values()])


def test_mean_over_models_is_of_each_pairs_distances():
    pairs = [(network(seed), network(seed + 10)) for seed in range(5)]
    single = [weight_distance(*pair) for pair in pairs]
    norms = [np.array([np.linalg.norm(flat(side)) for side in sides]) for sides in zip(*pairs, strict=True)]
    found = mean_weight_distance(np.array([result.value for result in single]), *norms)
    assert found.value == pytest.approx(np.mean([result.value for result in single]))
    for name in ("over_norm", "norm", "of_unit_weights"):
        assert found.table[name] == pytest.approx(np.mean([result.table[name] for result in single])), name


def test_models_beyond_the_shortest_side_do_not_count():
    assert mean_weight_distance(np.array([1.0, 3.0]), np.array([2.0, 2.0]), np.array([2.0, 2.0, 2.0])).value == 2.0
    assert mean_weight_distance(np.array([1.0, 3.0]), np.array([2.0, 2.0]), np.array([2.0])).value == 1.0


def test_mean_of_zero_weights_has_no_ratio():
    found = mean_weight_distance(np.array([1.0, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    assert (found.value, found.table["over_norm"], found.table["of_unit_weights"]) == (1.0, None, None)
    single = weight_distance({"w": np.zeros(3)}, {"w": np.ones(3)})
    assert (single.table["over_norm"], single.table["of_unit_weights"]) == (None, None)


COPIES, RADII = 1000, (0.0, 0.5, 2.0)


def linear(weights: list[float], bias: float) -> nn.Linear:
    """Return a network of two classes that calls x class 1 where weights . x + bias > 0."""
    network = nn.Linear(3, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], weights]))
        network.bias.copy_(torch.tensor([0.0, bias]))
    return network


def solved(network: nn.Linear, points: torch.Tensor, radius: float) -> float:
    """Return the mean share of the sphere around each point that is called class 1.

    In three dimensions the height of a uniform point of a sphere is uniform (Archimedes), so a plane at a distance d
    from the centre leaves (1 + d / R) / 2 of it on the centre's side.
    """
    normal, bias = network.weight[1].detach().numpy(), float(network.bias[1].detach())
    distance = (points.numpy() @ normal + bias) / np.linalg.norm(normal)
    if radius == 0.0:
        return float((distance > 0).mean())
    return float(np.clip((1 + distance / (radius * np.sqrt(3))) / 2, 0, 1).mean())


def test_probe_and_ratio_equal_a_linear_case_solved_by_hand() -> None:
    points = torch.tensor([[1.0, 0.2, 0.0], [0.3, -0.4, 0.5], [2.0, 1.0, -1.0], [0.1, 0.1, 0.2]])
    labels = torch.ones(4, dtype=torch.int64)
    networks = {"unlearned": linear([1.0, 0.5, 0.0], 0.3), "retrained": linear([0.2, -1.0, 0.4], 0.1)}
    measured = {
        side: perturbed_accuracy(
            network, network.state_dict(), points, labels, input_scale=1.0, radii=RADII, copies=COPIES
        )[None]
        for side, network in networks.items()
    }
    shares = {side: [solved(network, points, radius) for radius in RADII] for side, network in networks.items()}
    for side, rows in measured.items():
        np.testing.assert_allclose(rows[0].mean(axis=1), shares[side], atol=0.03)
    found = residual_knowledge(measured["unlearned"], measured["retrained"], RADII)
    expected = np.divide(shares["unlearned"], shares["retrained"])
    np.testing.assert_allclose(found.arrays["ratio"], expected, rtol=0.08)


def test_relearn_time_notes_censored_models():
    found = relearn_time(np.array([100, 50]), np.array([25, 25]))
    assert found.value == 3.0
    assert found.per_run.tolist() == [4.0, 2.0]
    assert found.notes == ("1 unlearned models did not relearn in time",)
    assert math.isnan(relearn_time(np.array([1]), np.array([0])).value)
    with pytest.raises(InvalidMetricInput, match=r"within \[0, 100\], not 101"):
        relearn_time(np.array([5, 101]), np.array([5]))


def test_residual_knowledge_per_radius():
    u = np.array([[[1.0, 1.0], [0.8, 0.4]]])
    r = np.array([[[1.0, 1.0], [0.4, 0.4]]])
    found = residual_knowledge(u, r, np.array([0.1, 0.0]))
    assert found.arrays["ratio"].tolist() == pytest.approx([1.0, 1.5])
    assert found.arrays["residual_share"].tolist() == [0.0, 0.5]
    assert found.value == pytest.approx(1.0), "the largest radius is not the last"


G = len(ATTACKS)


def knowledge(n_models: int = 3, **after: float) -> np.ndarray:
    rows = np.full((n_models, G), 0.5)
    for attack, value in after.items():
        rows[:, ATTACKS.index(attack.replace("_", "-"))] = value
    return rows


def test_worst_attack_is_the_value() -> None:
    found = robustness(knowledge(quantise_4=0.9, retain_3=0.7), knowledge(2, quantise_4=0.6, retain_3=0.6))
    assert found.value == pytest.approx(0.3)
    assert found.table["worst"] == "quantise-4"
    place = ATTACKS.index("quantise-4")
    assert (found.table["unlearned"][place], found.table["retrained"][place]) == pytest.approx((0.9, 0.6))
    assert robustness(knowledge(), knowledge()).table["worst"] == "none"
    with pytest.raises(InvalidMetricInput, match=r"must be of 13 attacks .* not 2"):
        robustness(np.ones((1, 2)), knowledge())


def test_sides_stand_beside_each_other() -> None:
    found = robustness(knowledge(), knowledge(), np.ones((1, G)), np.array([1.0, 3.0]), np.array([0.5]))
    assert found.table["original"] == [1.0] * G
    assert (found.table["unlearned_barrier"], found.table["retrained_barrier"]) == (2.0, 0.5)
