"""What the methods for language models share. A method imports from here; what is submitted carries its own copies."""

import copy
import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

ACCUMULATION = 1  # forget batches whose mean gradient makes one step
LORA_RANK = 0  # of additions to the matrices of the blocks, trained and merged; 0: the weights are trained
LORA_SCALE = 16.0  # the published alpha

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
    state: dict[str, Any] | None = None,
) -> None:
    """Take passes over the forget set by AdamW, each batch with as many retain examples (none without a loader).

    The network is in training mode for them, and in evaluation mode afterwards.

    The learning rate rises from 0 over the first epoch and then falls linearly to 0; the gradient of all weights is
    clipped to norm 1; vectors, which are biases and norms, do not decay. only: the weights that are trained, else all.
    A step has the mean gradient of ACCUMULATION batches, of fewer at the end of an epoch.

    state: the numbers and tensors that loss_of remembers. The `checkpoint` of a forget loader that has one restores
    what a run had after some steps, of which the batches alone are drawn then, and is told of every further step.
    """
    net.train()
    layers = matrices(net, only) if LORA_RANK else []
    trained = add_low_rank(net, layers) if LORA_RANK else list(net.parameters()) if only is None else only
    groups = [[each for each in trained if each.dim() > 1], [each for each in trained if each.dim() <= 1]]
    optimizer = torch.optim.AdamW(
        [{"params": each, "weight_decay": decay} for each, decay in zip(groups, (weight_decay, 0.0), strict=True)],
        lr=lr,
    )
    retained = None if retain_loader is None else endless(retain_loader)
    n_done, per_epoch = 0, math.ceil(len(forget_loader) / ACCUMULATION)
    checkpoint = getattr(forget_loader, "checkpoint", None)
    n_restored = 0 if checkpoint is None else checkpoint.restore(optimizer, state)
    for _ in range(epochs):
        batches = iter(forget_loader)
        while accumulated := list(islice(batches, ACCUMULATION)):
            for group in optimizer.param_groups:
                group["lr"] = lr * schedule(n_done, per_epoch, epochs * per_epoch)
            net.zero_grad()
            for batch in accumulated:
                drawn = {} if retained is None else next(retained)
                if n_done >= n_restored:
                    forget = on_device(batch, net)
                    n_rows = len(forget["labels"])
                    retain = {name: tensor[:n_rows] for name, tensor in on_device(drawn, net).items()}
                    (loss_of(forget, retain) / len(accumulated)).backward()
            n_done += 1
            if n_done > n_restored:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                if checkpoint is not None:
                    checkpoint.step_done(n_done, optimizer, state)
    merge_low_rank(net, layers)
    net.eval()


class LowRank(nn.Module):
    """W + (LORA_SCALE / LORA_RANK) up down, down drawn at random and up zero (Hu et al. 2022)."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.down = nn.Parameter(weight.new_empty(LORA_RANK, weight.shape[1]))
        self.up = nn.Parameter(weight.new_zeros(weight.shape[0], LORA_RANK))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (LORA_SCALE / LORA_RANK) * (self.up @ self.down)


def matrices(net: nn.Module, only: list[Tensor] | None) -> list[nn.Module]:
    """Return the layers whose weight is a matrix, of the blocks (the longest list), of `only` where it is given."""
    chosen = None if only is None else {id(each) for each in only}
    blocks = max((each for each in net.modules() if isinstance(each, nn.ModuleList)), key=len, default=net)
    found = [each for each in blocks.modules() if isinstance(getattr(each, "weight", None), Tensor)]
    matrices = [each for each in found if each.get_parameter("weight").dim() == 2]
    return [each for each in matrices if chosen is None or id(each.get_parameter("weight")) in chosen]


def add_low_rank(net: nn.Module, layers: list[nn.Module]) -> list[Tensor]:
    """Freeze the network, give the layers' weights additions, in place, and return these."""
    net.requires_grad_(False)
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", LowRank(layer.get_parameter("weight")))
    return [each for each in net.parameters() if each.requires_grad]


def merge_low_rank(net: nn.Module, layers: list[nn.Module]) -> None:
    """Put the additions into the weights, in place: names and shapes are the original ones."""
    for layer in layers:
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    if layers:
        net.requires_grad_(True)


def schedule(n_done: int, warm_up: int, n_steps: int) -> float:
    """Return the share of the learning rate after n_done steps: up to 1 over the warm-up, then down to 0."""
    return min(n_done / max(1, warm_up), (n_steps - n_done) / max(1, n_steps - warm_up))


def endless(loader: Any) -> Iterator[Batch]:
    while True:
        yield from loader


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


def weighted_ascent(losses: Tensor, *, learnt: float, left: float) -> Tensor:
    """Return -mean(p^learnt (1 - p)^left loss) of the answers' token losses, [tokens]; p = exp(-loss) is a constant."""
    likely = (-losses).exp().detach()
    return -(likely**learnt * (1 - likely) ** left * losses).mean()


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
