"""Gradient ascent: raise the loss of the forgotten answers.

The network climbs the loss of the answers to forget; nothing holds the rest, so answers turn to gibberish soon.

Pseudo-code:
    EPOCHS times: for each forget batch: step AdamW on -mean token loss

Source: Maini et al. 2024 (TOFU), section 4, gradient ascent.
Budget: EPOCHS epochs over the forget set.
Deterministic: no
Differences: none known.
Needs: forget answers
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    net.train()
    train(net, lambda forget: -mean_loss(net, forget), forget_loader)
    net.eval()


def mean_loss(net: nn.Module, batch: Batch) -> Tensor:
    """Return the mean loss of all labelled tokens of a batch."""
    return token_losses(net, batch).sum() / n_tokens(batch).sum()


def token_losses(net: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of every token but the first, 0 where the label is -100: [n, length - 1]."""
    return of_tokens(compute_logits(net, batch), batch["labels"])


def of_tokens(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none")


def n_tokens(batch: Batch) -> Tensor:
    """Return the number of labelled tokens of every sequence: [n]."""
    return (batch["labels"] != -100).sum(1)


def train(net: nn.Module, loss_of: Callable[[Batch], Tensor], forget_loader: Any) -> None:
    """Take EPOCHS passes over the forget set, by AdamW.

    The learning rate rises over the first epoch and then falls linearly to 0; gradients are clipped to norm 1.
    """
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=WEIGHT_DECAY)
    step, n_steps = 0, EPOCHS * len(forget_loader)
    for _ in range(EPOCHS):
        for batch in forget_loader:
            optimizer.param_groups[0]["lr"] = LR * schedule(step, len(forget_loader), n_steps)
            optimizer.zero_grad()
            loss_of(on_device(batch, net)).backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            step += 1


def schedule(step: int, warm_up: int, n_steps: int) -> float:
    return min((step + 1) / warm_up, (n_steps - step) / max(1, n_steps - warm_up))


def on_device(batch: Batch, net: nn.Module) -> Batch:
    device = next(net.parameters()).device
    return {name: tensor.to(device) for name, tensor in batch.items()}


def compute_logits(net: nn.Module, batch: Batch) -> Tensor:
    """Return logits [n, length, vocabulary] of a network that returns them, or an object that holds them."""
    output = net(batch["input_ids"], batch["attention_mask"])
    logits: Tensor = getattr(output, "logits", output)
    return logits
