"""FCS (Fanchuan, 1st place): flatten the outputs on the forget set, then alternate contrast and repair.

One pass over the forget set drives its outputs towards uniform. Eight rounds follow: steps that push the forget set's
outputs away from those of retain batches by a contrastive loss, then an epoch on the retain set. Erasing and repairing
stay in balance because neither runs long.

Pseudo-code:
    for each forget batch: step on KL(uniform || softmax(net(x)))
    ROUNDS times:
        for forget batch xf with retain batch xr: step on mean(-log_softmax(net(xf) @ net(xr).detach().T / T)), cosine
        one pass of SGD over the retain set on cross-entropy

Source: Triantafillou et al. 2024, appendix A.4 "Fanchuan"; Cadet et al. 2024, FCS.
Budget: ROUNDS epochs over the retain set and 3 * ROUNDS * |S| / |R|.
Measured: the time of 11.28 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper writes KL to uniform; the program's kl_loss_sym is not symmetric, it is KL(uniform || p). The
    retain learning rate is 0.001 * B / 64 for batches of B.
Needs: forget images
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

UNIFORM_LR = 0.005  # lethe: tune UNIFORM_LR = log(1e-5, 1e-1)
CONTRAST_LR = 3e-4  # lethe: tune CONTRAST_LR = log(1e-5, 1e-1)
LAST_CONTRAST_LR = 1e-6
T = 1.15  # lethe: tune T = uniform(0.5, 5)
LR = 0.001  # for batches of 64  # lethe: tune LR = log(1e-5, 1e-1)
ROUNDS = 8  # lethe: tune ROUNDS = int(1, 8)
MOMENTUM = 0.9
WEIGHT_DECAY = 0.01  # of the retain epochs  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
SCHEDULE = "erase0 (erase repair)*ROUNDS"
REPAIR_EPOCHS, REPAIR_LR = 1, LR


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state: dict[str, Any] = {}
    erase0(net, retain_loader, forget_loader, val_loader, state)
    for _ in range(ROUNDS):
        erase(net, retain_loader, forget_loader, val_loader, state)
        repair(net, retain_loader, forget_loader, val_loader, state, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def erase0(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=UNIFORM_LR, momentum=MOMENTUM)
    net.train()
    for images, _ in batches(forget_loader, net):
        step(optimizer, uniform_loss(net(images)))


def erase(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any, state: dict[str, Any]) -> None:
    if "contrast" not in state:
        state["contrast"] = torch.optim.SGD(net.parameters(), lr=CONTRAST_LR, momentum=MOMENTUM)
        state["done"] = 0
    total = ROUNDS * len(forget_loader)
    net.train()
    for (forget_images, _), (retain_images, _) in zip(
        batches(forget_loader, net), batches(retain_loader, net), strict=False
    ):
        annealed = cosine(CONTRAST_LR - LAST_CONTRAST_LR, min(state["done"], total), total)
        set_lr(state["contrast"], LAST_CONTRAST_LR + annealed)
        step(state["contrast"], contrastive_loss(net(forget_images), net(retain_images).detach()))
        state["done"] += 1


def repair(
    net: nn.Module,
    retain_loader: Any,
    forget_loader: Any,
    val_loader: Any,
    state: dict[str, Any],
    epochs: int,
    lr: float,
) -> None:
    optimizer = sgd(net.parameters(), lr * (retain_loader.batch_size or 64) / 64)
    net.train()
    for _ in range(epochs):
        for images, labels in batches(retain_loader, net):
            step(optimizer, functional.cross_entropy(net(images), labels))


def uniform_loss(logits: Tensor) -> Tensor:
    """Return the mean KL divergence of the softmax from the uniform distribution, KL(uniform || p). logits: [n, C]."""
    n_classes = logits.shape[1]
    return ((-math.log(n_classes) - logits.log_softmax(1)) / n_classes).sum(1).mean()


def contrastive_loss(forget: Tensor, retain: Tensor) -> Tensor:
    """Return the mean of -log softmax of the logits' products over T. forget: [n, C]; retain: [m, C]."""
    return -(forget @ retain.T / T).log_softmax(1).mean()


def batches(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, labels) of one pass on the network's device; BatchNorm cannot train on a batch of one."""
    device = next(net.parameters()).device
    skips_single = net.training and any(isinstance(module, _BatchNorm) for module in net.modules())
    for sample in loader:
        if not (skips_single and len(sample["image"]) == 1):
            yield sample["image"].to(device), sample["label"].to(device)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def cosine(lr: float, done: int, total: int) -> float:
    """Return the learning rate after `done` of `total` steps of cosine annealing from `lr` to 0."""
    return lr * (1 + math.cos(math.pi * done / total)) / 2


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
