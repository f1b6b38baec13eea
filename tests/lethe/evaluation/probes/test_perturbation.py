"""Recognition of perturbed forget examples."""

import numpy as np
import pytest
import torch

from lethe.evaluation.probes.split_probes import perturbed_accuracy


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
