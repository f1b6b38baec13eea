"""How long training takes, roughly, from shapes alone: no clock decides how a split is cut into shards.

So two preparations of one split lay their models into the same files.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lethe.competition.estimates import arithmetic_seconds
from lethe.competition.file import Training
from lethe.networks.builders import build


def training_seconds(network: Mapping[str, Any], recipe: Training, *, n_images: int, device: str) -> float:
    """Return about how long one process trains one model."""
    return arithmetic_seconds(forward_operations(network), recipe, n_images=n_images, device=device)


def forward_operations(network: Mapping[str, Any]) -> int:
    """Return the additions and multiplications of convolutions and linear layers for one image, about."""
    counted = 0

    def count(module: nn.Module, _: object, output: Tensor) -> None:
        nonlocal counted
        weight: Any = module.weight
        counted += 2 * int(weight.numel()) * (output.numel() // len(weight))

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        net = build(network).train()  # in evaluation mode some attention layers pass over their parts
        for module in net.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.register_forward_hook(count)
        net(torch.zeros(2, *network["input_shape"]))  # batch normalisation wants more than one
        return max(counted // 2, 2 * sum(parameter.numel() for parameter in net.parameters()))
