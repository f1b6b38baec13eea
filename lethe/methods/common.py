"""What the methods for images share. A method imports from here; what is submitted carries its own copies.

`lethe.methods.inlining` puts these functions into the one file that a submission is.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import ConcatDataset, DataLoader, RandomSampler, Subset

NORM_LAYERS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)


def batches(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, labels) of one pass on the network's device; BatchNorm cannot train on a batch of one."""
    device = next(net.parameters()).device
    skips_single = any(isinstance(module, _BatchNorm) and module.training for module in net.modules())
    for sample in loader:
        if not (skips_single and len(sample["image"]) == 1):
            yield sample["image"].to(device), sample["label"].to(device)


def cycle(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches without end, one pass after another."""
    while True:
        n_batches = 0
        for batch in batches(loader, net):
            n_batches += 1
            yield batch
        if not n_batches:
            raise ValueError("the set is too small: it has no batch that the network can be trained on")


def resized(loader: Any, size: int) -> Any:
    """Return a loader of the same examples in batches of `size`, shuffled where this one is; 0: this one."""
    if size in (0, loader.batch_size):
        return loader
    return DataLoader(loader.dataset, batch_size=size, shuffle=isinstance(loader.sampler, RandomSampler))


def ordered(loader: Any) -> Any:
    """Return a loader of the same batches that does not shuffle, so that two runs see the same ones."""
    return DataLoader(loader.dataset, batch_size=loader.batch_size)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(
    net: nn.Module,
    loader: Any,
    optimizer: torch.optim.Optimizer,
    rates: Sequence[float],
    loss: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
) -> None:
    """Make one pass over the loader with each learning rate.

    loss: of (logits, labels, images); cross-entropy where there is none.
    """
    net.train()
    for rate in rates:
        set_lr(optimizer, rate)
        for images, labels in batches(loader, net):
            logits = net(images)
            step(optimizer, functional.cross_entropy(logits, labels) if loss is None else loss(logits, labels, images))


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def annealed(lr: float, epochs: int, annealing: str = "cosine") -> list[float]:
    """Return the learning rate of each epoch: "constant", or "cosine" from `lr` towards 0."""
    if annealing == "constant":
        return [lr] * epochs
    return [lr * (1 + math.cos(math.pi * epoch / epochs)) / 2 for epoch in range(epochs)]


def weight_layers(net: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    return [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def last_layers(net: nn.Module, k: int) -> list[nn.Module]:
    """Return the last k weight layers and every normalisation registered after the first of them."""
    chosen = weight_layers(net)[-k:]
    order = list(net.modules())
    start = next(position for position, module in enumerate(order) if module is chosen[0])
    norms = [module for module in order[start:] if isinstance(module, NORM_LAYERS)]
    return [*chosen, *norms]


def falling_rates(lr: float, last_lr: float, epochs: int, annealing: str) -> list[float]:
    """Return each epoch's learning rate from lr to last_lr: one "cosine", or "restarts" over 1, 2, 4, ... epochs."""
    rates = []
    for epoch in range(epochs):
        length, done = epochs, epoch
        if annealing == "restarts":
            length = 1 << ((epoch + 1).bit_length() - 1)
            done = epoch + 1 - length
        rates.append(last_lr + (lr - last_lr) * (1 + math.cos(math.pi * done / length)) / 2)
    return rates


def train_layers(
    net: nn.Module,
    layers: list[nn.Module],
    loader: Any,
    rates: Sequence[float],
    *,
    momentum: float,
    weight_decay: float,
    clip: float,
) -> None:
    """Make one pass with each learning rate by which only these layers are trained, the gradient clipped to a norm."""
    trained = {id(parameter) for module in layers for parameter in module.parameters()}
    wanted = [parameter.requires_grad for parameter in net.parameters()]
    for parameter in net.parameters():
        parameter.requires_grad_(id(parameter) in trained)
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.0, momentum=momentum, weight_decay=weight_decay)
    net.train()
    for rate in rates:
        set_lr(optimizer, rate)
        for images, labels in batches(loader, net):
            optimizer.zero_grad()
            functional.cross_entropy(net(images), labels).backward()
            nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()
    for parameter, wants in zip(net.parameters(), wanted, strict=True):
        parameter.requires_grad_(wants)
    net.eval()


def class_counts(loader: Any, net: nn.Module) -> Tensor:
    """Return how often each label occurs, up to the largest one."""
    return torch.bincount(torch.cat([labels for _, labels in batches(loader, net)]))


def frozen_copy(net: nn.Module) -> nn.Module:
    """Return the network as it is, for its outputs only."""
    return copy.deepcopy(net).eval().requires_grad_(False)


def mixed(
    net: nn.Module, retain_loader: Any, forget_loader: Any, *, share: float = 1.0, batch_size: int = 0
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield (images, labels, is_forget, index) of the forget set and `share` of the retain set, shuffled together.

    index: the place of an example in the forget set. batch_size: 0 is that of the retain loader.
    """
    device = next(net.parameters()).device
    n_forget, n_retain = len(forget_loader.dataset), len(retain_loader.dataset)
    chosen = torch.randperm(n_retain)[: int(share * n_retain)].tolist()
    joined: ConcatDataset[Any] = ConcatDataset([forget_loader.dataset, Subset(retain_loader.dataset, chosen)])
    for part in torch.randperm(len(joined)).split(batch_size or retain_loader.batch_size):
        if len(part) == 1 and net.training and any(isinstance(module, _BatchNorm) for module in net.modules()):
            continue  # BatchNorm cannot train on a batch of one
        samples = [joined[index] for index in part.tolist()]
        is_forget = (part < n_forget).to(device)
        yield (
            torch.stack([sample["image"] for sample in samples]).to(device),
            torch.tensor([int(sample["label"]) for sample in samples], device=device),
            is_forget,
            part.to(device) * is_forget,
        )


def uniform_labels(logits: Tensor) -> Tensor:
    """Return one label for each row, each class equally likely, the true one too."""
    return torch.randint(logits.shape[1], (len(logits),)).to(logits.device)


def uniform_draws(n: int, device: torch.device) -> Tensor:
    """Return n numbers in [0, 1), one for each example of the forget set."""
    return torch.rand(n).to(device)


def accuracy(net: nn.Module, loader: Any) -> float:
    """Return the share of right predictions; the network is in evaluation mode afterwards."""
    net.eval()
    with torch.no_grad():
        hits = [net(images).argmax(1) == labels for images, labels in batches(loader, net)]
    return float(torch.cat(hits).float().mean()) if hits else 0.0


def importance(net: nn.Module, data: Iterable[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Return the mean over batches of the squared gradient of the batch's mean loss, one tensor a parameter."""
    net.eval()
    parameters = list(net.parameters())
    total, n_batches = [torch.zeros_like(parameter) for parameter in parameters], 0
    for images, labels in data:
        gradients = torch.autograd.grad(functional.cross_entropy(net(images), labels), parameters, allow_unused=True)
        for summed, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                summed.add_(gradient.square())
        n_batches += 1
    return [summed / max(n_batches, 1) for summed in total]


@torch.no_grad()
def dampen(parameter: Tensor, full: Tensor, forget: Tensor, *, alpha: float, factor: float) -> None:
    """Scale the weights whose forget importance exceeds alpha times the full one by factor * full / forget, at most 1.

    parameter, full, forget: same shape.
    """
    selected = forget > alpha * full
    scale = (factor * full / forget).clamp(max=1)
    parameter.copy_(torch.where(selected, parameter * scale, parameter))
