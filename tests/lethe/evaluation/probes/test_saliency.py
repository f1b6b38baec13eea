"""Saliency maps of networks whose gradients are known."""

import numpy as np
import torch
from torch import nn

from lethe.evaluation.probes.saliency import saliency_arrays, saliency_maps


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
