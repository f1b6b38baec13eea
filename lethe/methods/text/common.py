"""What the methods for language models share. A method imports from here; what is submitted carries its own copies."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]


def train(
    net: nn.Module,
    loss_of: Callable[[Batch, Batch], Tensor],
    forget_loader: Any,
    retain_loader: Any,
    *,
    lr: float,
    epochs: int,
    weight_decay: float,
    only: list[Tensor] | None = None,
) -> None:
    """Take passes over the forget set by AdamW, each batch with as many retain examples (none without a loader).

    The learning rate rises from 0 over the first epoch and then falls linearly to 0; the gradient of all weights is
    clipped to norm 1; vectors, which are biases and norms, do not decay. only: the weights that are trained, else all.
    """
    trained = list(net.parameters()) if only is None else only
    groups = [[each for each in trained if each.dim() > 1], [each for each in trained if each.dim() <= 1]]
    optimizer = torch.optim.AdamW(
        [{"params": each, "weight_decay": decay} for each, decay in zip(groups, (weight_decay, 0.0), strict=True)],
        lr=lr,
    )
    retained = None if retain_loader is None else endless(retain_loader)
    n_done, n_steps = 0, epochs * len(forget_loader)
    for _ in range(epochs):
        for batch in forget_loader:
            forget = on_device(batch, net)
            n_rows = len(forget["labels"])
            retain = {} if retained is None else first_rows(on_device(next(retained), net), n_rows)
            for group in optimizer.param_groups:
                group["lr"] = lr * schedule(n_done, len(forget_loader), n_steps)
            net.zero_grad()
            loss_of(forget, retain).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            n_done += 1


def schedule(n_done: int, warm_up: int, n_steps: int) -> float:
    """Return the share of the learning rate after n_done steps: up to 1 over the warm-up, then down to 0."""
    return min(n_done / max(1, warm_up), (n_steps - n_done) / max(1, n_steps - warm_up))


def endless(loader: Any) -> Iterator[Batch]:
    while True:
        yield from loader


def first_rows(batch: Batch, n: int) -> Batch:
    return {name: tensor[:n] for name, tensor in batch.items()}


def on_device(batch: Batch, net: nn.Module) -> Batch:
    device = next(net.parameters()).device
    return {name: tensor.to(device) for name, tensor in batch.items()}


def compute_logits(net: nn.Module, batch: Batch) -> Tensor:
    """Return logits [n, length, vocabulary] of a network that returns them, or an object that holds them."""
    output = net(batch["input_ids"], batch["attention_mask"])
    logits: Tensor = getattr(output, "logits", output)
    return logits


def token_losses(net: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of every token but the first, 0 where the label is -100: [n, length - 1]."""
    return of_tokens(compute_logits(net, batch), batch["labels"])


def of_tokens(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none")


def answer_token_losses(net: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of every labelled token: [tokens]."""
    return token_losses(net, batch)[batch["labels"][:, 1:] != -100]


def n_tokens(batch: Batch) -> Tensor:
    """Return the number of labelled tokens of every sequence: [n]."""
    return (batch["labels"] != -100).sum(1)


def mean_loss(net: nn.Module, batch: Batch) -> Tensor:
    """Return the mean loss of all labelled tokens of a batch."""
    return token_losses(net, batch).sum() / n_tokens(batch).sum()


def sequence_nll(net: nn.Module, batch: Batch) -> Tensor:
    """Return the summed loss of every sequence's labelled tokens: [n]."""
    return token_losses(net, batch).sum(1)


def refusals(batch: Batch) -> Batch:
    """Return the forget questions with "I don't know" answers. Raises KeyError if the loader has none."""
    if "idk_labels" not in batch:
        raise KeyError("this method needs a competition whose forget batches hold refusals (idk_input_ids, idk_labels)")
    return {name: batch["idk_" + name] for name in ("input_ids", "attention_mask", "labels")}


def frozen_copy(net: nn.Module) -> nn.Module:
    """Return the network as it is, for its outputs only."""
    return copy.deepcopy(net).eval().requires_grad_(False)
