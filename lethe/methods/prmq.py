"""PRMQ (Sebastian, 4th place): prune and redraw nearly all weights, then imitate the original's certainty.

The AMOUNT share of smallest weights, over all convolutions and linear layers together, is drawn again. Training on the
retain set matches labels and, by squared error, the entropy of the original network's outputs. At the end weights are
rounded to half precision.

Pseudo-code:
    t = frozen copy; zero the AMOUNT share of smallest |w| of convolution and linear tensors, weights and biases
    pruned weights = U(-1, 1) / sqrt(fan in); pruned biases stay 0
    int(EPOCHS * batches) + 1 steps on the retain set: ce(net(x), y, weight = count^-0.1) + mse(H(net(x)), H(t(x)))
    round to half precision

Source: Triantafillou et al. 2024, appendix A.4 "Sebastian"; Cadet et al. 2024, PRMQ.
Budget: 4/3 * EPOCHS epochs over the retain set (a second forward pass).
Measured: the time of 5.23 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper says reciprocal class weights; the program takes count^-0.1.
Needs: second network
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import class_counts, cycle, frozen_copy, step, weight_layers

AMOUNT = 0.99  # lethe: tune AMOUNT = uniform(0.5, 0.999)
LR = 5e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 3.2  # lethe: tune EPOCHS = uniform(1, 6)
SCHEDULE = "erase repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    prepare(net, retain_loader, forget_loader, val_loader, state)
    erase(net, retain_loader, forget_loader, val_loader, state)
    repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def prepare(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    state["teacher"] = frozen_copy(net)
    state["counts"] = class_counts(retain_loader, net)


@torch.no_grad()
def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    layers = weight_layers(net)
    tensors = [tensor for layer in layers for tensor in (layer.weight, layer.bias) if tensor is not None]
    masks = smallest(tensors, AMOUNT)
    for tensor, mask in zip(tensors, masks, strict=True):
        tensor.masked_fill_(mask, 0.0)
    for layer in layers:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        fresh = torch.empty_like(layer.weight).uniform_(-bound, bound)
        layer.weight.copy_(torch.where(layer.weight == 0, fresh, layer.weight))


def smallest(tensors: Sequence[Tensor], share: float) -> list[Tensor]:
    """Return masks of the shapes of `tensors`, true at the `share` of all entries with the smallest magnitude."""
    magnitudes = torch.cat([tensor.detach().abs().flatten() for tensor in tensors])
    mask = torch.zeros_like(magnitudes, dtype=torch.bool)
    mask[magnitudes.topk(round(share * len(magnitudes)), largest=False).indices] = True
    parts = mask.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: float, lr: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    counts = state["counts"]
    net.train()
    retain_batches = cycle(retain, net)
    for _ in range(int(epochs * len(retain)) + 1):  # the program counts one step more
        images, labels = next(retain_batches)
        logits, original = net(images), state["teacher"](images)
        weights = torch.ones(logits.shape[1], device=logits.device)
        weights[: len(counts)] = counts.clamp(min=1).float() ** -0.1
        step(optimizer, certainty_loss(logits, original, labels, weights))
    round_to_half(net)


@torch.no_grad()
def round_to_half(net: nn.Module) -> None:
    """Round every number to half precision; what is too large for it (a running variance) stays as it is."""
    for tensor in net.state_dict().values():
        if tensor.is_floating_point():
            rounded = tensor.half().to(tensor.dtype)
            tensor.copy_(torch.where(rounded.isfinite(), rounded, tensor))


def certainty_loss(logits: Tensor, original: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return weighted cross-entropy plus the squared difference of entropies. Logits: [n, C]; weights: [C]."""
    matched = functional.mse_loss(entropy(logits), entropy(original))
    return functional.cross_entropy(logits, labels, weight=weights) + matched


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each row's softmax, in nats."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
