"""LoRA: train small additions to a network's linear layers, then merge them.

Source: Hu et al. 2022 (2106.09685): W + (scale / rank) B A, A drawn at random and B zero, so that nothing changes at
first.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

OUTPUT_LAYERS = ("lm_head", "embed_out")  # of the library transformers' models: often the embedding itself


class LoraLinear(nn.Module):
    """A frozen linear layer with a trained addition of low rank."""

    def __init__(self, layer: nn.Linear, *, rank: int, scale: float) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.up = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        self.factor = scale / rank
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's output with the addition."""
        result: Tensor = self.layer(inputs)
        return result + functional.linear(functional.linear(inputs, self.down), self.up) * self.factor

    def merged(self) -> nn.Linear:
        """Return the plain layer with the addition in its weights."""
        with torch.no_grad():
            self.layer.weight += self.factor * (self.up @ self.down)
        return self.layer.requires_grad_(True)


def add_lora(network: nn.Module, *, rank: int = 8, scale: float = 16.0) -> None:
    """Freeze the network and give every linear layer in its blocks an addition, in place; none to an output layer.

    rank: of the additions, at least 1. scale: the published alpha. Raises ValueError if the network has no linear
    layer.
    """
    if rank < 1:
        raise ValueError(f"the rank of LoRA is {rank}; it must be at least 1")
    network.requires_grad_(False)
    found = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear) and name not in OUTPUT_LAYERS
    ]
    if not found:
        raise ValueError("the network has no linear layer to which LoRA could be added")
    for parent, name, child in found:
        setattr(parent, name, LoraLinear(child, rank=rank, scale=scale))


def merge_lora(network: nn.Module) -> None:
    """Put all additions into the weights, in place: names and shapes are the original ones again."""
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoraLinear):
                setattr(parent, name, child.merged())
    network.requires_grad_(True)
