"""How many epochs on the forget set alone bring a model's loss on it back to the original model's."""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.data.torch_seeds import global_generators

SLACK = 0.05
EPOCHS = 100
BATCH = 64


def mean_loss(network: nn.Module, images: Tensor, labels: Tensor, *, batch: int = BATCH) -> float:
    """Return the mean cross-entropy of the network in evaluation mode, in nats.

    images: shape (n_examples, ...). labels: shape (n_examples,), class numbers.
    """
    network.eval()
    total = 0.0
    with torch.inference_mode():
        for x, y in zip(torch.split(images, batch), torch.split(labels, batch), strict=True):
            total += float(functional.cross_entropy(network(x), y, reduction="sum"))
    return total / labels.shape[0]


def relearn_epochs(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    original_loss: float,
    learning_rate: float,
    max_epochs: int = EPOCHS,
    batch: int = BATCH,
    slack: float = SLACK,
    seed: int = 0,
) -> int:
    """Return the epochs of plain SGD until the mean loss is at most (1 + slack) * original_loss, at most max_epochs.

    network: of the competition's architecture; a copy is trained. weights: its state_dict. images, labels: the forget
    set, on the network's device. original_loss: `mean_loss` of the original model on it. learning_rate: a tenth of
    the training's is usual. seed: of the order of the batches and of dropout; torch's own generators stay as they are.
    0 if the loss is there from the start.
    Source: Golatkar et al. 2020; Kurmanji et al. 2023, readout.
    """
    model = deepcopy(network)
    model.load_state_dict(weights)
    limit = (1.0 + slack) * original_loss
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    order = torch.Generator().manual_seed(seed)
    with global_generators(seed, images.device):
        for epoch in range(max_epochs):
            if mean_loss(model, images, labels, batch=batch) <= limit:
                return epoch
            rows = torch.randperm(len(labels), generator=order)
            _train_once(model, optimizer, images, labels, batches(rows, batch))
    return max_epochs


def batches(rows: Tensor, batch: int) -> tuple[Tensor, ...]:
    """Return the rows in batches; one that would be left alone goes with those before it, as batch norm needs."""
    parts = torch.split(rows, batch)
    return parts if len(parts) < 2 or len(parts[-1]) > 1 else (*parts[:-2], torch.cat(parts[-2:]))


def _train_once(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, parts: tuple[Tensor, ...]
) -> None:
    model.train()
    for rows in parts:
        chosen = rows.to(labels.device)
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
