"""SimNPO: negative preference optimisation by the mean loss of a token, without a copy of the original network.

Pseudo-code:
    EPOCHS times: for each forget batch F and as many retain examples R: step AdamW on
        -GAMMA * 2 / BETA * mean log sigmoid(BETA * (mean token loss of each answer - DELTA)) + ALPHA * loss(R)

Source: Fan et al. 2024 (SimNPO); constants as in open-unlearning.
Budget: EPOCHS epochs over the forget set, and as many retain examples.
Deterministic: no
Differences: none known.
Needs: forget answers
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
BETA = 4.5  # lethe: tune BETA = uniform(1, 10)
DELTA = 0.0  # lethe: tune DELTA = uniform(0, 2)
GAMMA = 0.125  # lethe: tune GAMMA = uniform(0.05, 1)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    net.train()

    def loss(forget: Batch, retain: Batch) -> Tensor:
        less_likely = simnpo_loss(sequence_nll(net, forget), n_tokens(forget))
        return GAMMA * less_likely + ALPHA * mean_loss(net, retain)

    train(net, loss, forget_loader, retain_loader)
    net.eval()


def simnpo_loss(nll: Tensor, tokens: Tensor) -> Tensor:
    """Return the loss of forget answers from their summed losses and their numbers of tokens, [n] each."""
    return -2 / BETA * functional.logsigmoid(BETA * (nll / tokens - DELTA)).mean()


def mean_loss(net: nn.Module, batch: Batch) -> Tensor:
    """Return the mean loss of all labelled tokens of a batch."""
    return token_losses(net, batch).sum() / n_tokens(batch).sum()


def sequence_nll(net: nn.Module, batch: Batch) -> Tensor:
    """Return the summed loss of every sequence's labelled tokens: [n]."""
    return token_losses(net, batch).sum(1)


def token_losses(net: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of every token but the first, 0 where the label is -100: [n, length - 1]."""
    return of_tokens(compute_logits(net, batch), batch["labels"])


def of_tokens(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none")


def n_tokens(batch: Batch) -> Tensor:
    """Return the number of labelled tokens of every sequence: [n]."""
    return (batch["labels"] != -100).sum(1)


def train(net: nn.Module, loss_of: Callable[[Batch, Batch], Tensor], forget_loader: Any, retain_loader: Any) -> None:
    """Take EPOCHS passes over the forget set, each batch with as many retain examples, by AdamW.

    The learning rate rises over the first epoch and then falls linearly to 0; gradients are clipped to norm 1.
    """
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=WEIGHT_DECAY)
    retained, step, n_steps = endless(retain_loader), 0, EPOCHS * len(forget_loader)
    for _ in range(EPOCHS):
        for batch in forget_loader:
            optimizer.param_groups[0]["lr"] = LR * schedule(step, len(forget_loader), n_steps)
            forget = on_device(batch, net)
            retain = first_rows(on_device(next(retained), net), len(batch["labels"]))
            optimizer.zero_grad()
            loss_of(forget, retain).backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            step += 1


def schedule(step: int, warm_up: int, n_steps: int) -> float:
    return min((step + 1) / warm_up, (n_steps - step) / max(1, n_steps - warm_up))


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
