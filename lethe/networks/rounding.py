"""Weights of linear layers and convolutions rounded to a few bits, or the smallest of them set to 0."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

LAYERS = (nn.Linear, nn.Conv2d)


@torch.no_grad()
def round_weight(weight: Tensor, *, bits: int, inputs: tuple[int, ...]) -> None:
    """Round to the nearest of 2^bits - 1 values, evenly spaced and symmetric about zero, in place.

    inputs: the axes that are not the output channels; each channel has its own spacing, by its largest weight.
    """
    most = 2 ** (bits - 1) - 1
    spacing = weight.float().abs().amax(inputs, keepdim=True).clamp(min=torch.finfo().tiny) / most
    weight.copy_((weight.float() / spacing).round() * spacing)


@torch.no_grad()
def prune_weight(weight: Tensor, *, share: float) -> None:
    """Set the `share` of the weights that are smallest in absolute value to 0, in place; of equals the first ones."""
    flat = weight.abs().flatten()
    smallest = flat.argsort(stable=True)[: int(share * len(flat))]
    weight.copy_(weight.flatten().index_fill(0, smallest, 0.0).view_as(weight))


def quantize(network: nn.Module, *, bits: int) -> None:
    """Round the weights of every linear layer and convolution. Embeddings, norms and biases stay."""
    for weight in layer_weights(network):
        round_weight(weight, bits=bits, inputs=tuple(range(1, weight.ndim)))


def prune(network: nn.Module, *, share: float) -> None:
    """Prune each linear layer and convolution by itself."""
    for weight in layer_weights(network):
        prune_weight(weight, share=share)


def layer_weights(network: nn.Module) -> Collection[Tensor]:
    """Return the weights of linear layers and convolutions, output channels first."""
    return [module.weight for module in network.modules() if isinstance(module, LAYERS)]
