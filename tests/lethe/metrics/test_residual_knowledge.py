"""Residual knowledge has no published program; it is checked against counting and against a case solved by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from lethe.evaluation.probes.split_probes import perturbed_accuracy
from lethe.metrics.weights.probes import residual_knowledge

COPIES, RADII = 1000, (0.0, 0.5, 2.0)


def test_ratio_is_that_of_counted_hits() -> None:
    rng = np.random.default_rng(3)
    hits = {side: rng.random((n, 3, 4, 20)) < share for side, n, share in (("u", 5, 0.7), ("r", 6, 0.4))}
    counted = {}
    for side, rows in hits.items():
        for radius in range(3):
            right = sum(bool(rows[m, radius, s, c]) for m in range(len(rows)) for s in range(4) for c in range(20))
            counted[side, radius] = right / (len(rows) * 4 * 20)
    found = residual_knowledge(hits["u"].mean(axis=3), hits["r"].mean(axis=3), [0.0, 0.03, 0.01])
    expected = [counted["u", radius] / counted["r", radius] for radius in range(3)]
    np.testing.assert_allclose(found.arrays["ratio"], expected, rtol=1e-12)
    assert found.value == pytest.approx(expected[1]), "the largest radius is not the last"


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
