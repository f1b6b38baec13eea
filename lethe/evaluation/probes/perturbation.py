"""How often a model still recognises forget examples after a small Gaussian perturbation."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

RADII = (0.0, 0.01, 0.03, 0.1)
COPIES = 100
BATCH = 256


def perturbed_accuracy(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    input_scale: float,
    radii: Sequence[float] = RADII,
    copies: int = COPIES,
    batch: int = BATCH,
    seed: int = 0,
) -> npt.NDArray[np.float64]:
    """Return the share of perturbed copies that the model classifies correctly, shape (n_radii, n_examples).

    A copy lies at a distance of radius * input_scale * sqrt(number of inputs) in a uniform direction, so a radius is
    the root mean square change of an input in units of input_scale (such as the greatest minus the least value).
    network: a copy of it is loaded with weights. images, labels: the forget set on its device. Equal seeds give equal
    perturbations, so models are compared on the same copies.
    Source: Hsu et al. 2025, residual knowledge under Gaussian noise.
    """
    model = deepcopy(network)
    model.load_state_dict(weights)
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    result = np.zeros((len(radii), len(labels)))
    with torch.inference_mode():
        for _ in range(copies):
            directions = _directions(images, generator)
            for place, radius in enumerate(radii):
                moved = images + radius * input_scale * directions
                result[place] += _right(model, moved, labels, batch)
    return result / copies


def _directions(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return directions of root mean square 1, uniform on the sphere."""
    noise = torch.randn(images.shape, generator=generator).to(images.device)
    norms = noise.flatten(1).square().mean(dim=1).sqrt()
    return noise / norms.view(-1, *(1,) * (images.ndim - 1))


def _right(model: nn.Module, images: Tensor, labels: Tensor, batch: int) -> npt.NDArray[np.float64]:
    parts = zip(torch.split(images, batch), torch.split(labels, batch), strict=True)
    right = torch.cat([model(x).argmax(dim=1) == y for x, y in parts])
    return right.cpu().numpy().astype(np.float64)
