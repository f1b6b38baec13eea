"""FCS (Fanchuan, 1st place): flatten the outputs on the forget set, then alternate contrast and repair.

One pass over the forget set drives its outputs towards uniform. Eight rounds follow: steps that push the forget set's
outputs away from those of retain batches by a contrastive loss, then an epoch on the retain set. Erasing and repairing
stay in balance because neither runs long.

Pseudo-code:
    for each forget batch: step on KL(uniform || softmax(net(x)))
    ROUNDS times:
        for forget batch xf with retain batch xr: step on mean(-log_softmax(net(xf) @ net(xr).detach().T / T)), cosine
        one pass of SGD over the retain set on cross-entropy, with one optimizer for all rounds

Source: Triantafillou et al. 2024, appendix A.4 "Fanchuan"; Cadet et al. 2024, FCS.
Budget: ROUNDS epochs over the retain set and 3 * ROUNDS * |S| / |R|.
Measured: the time of 10.38 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the paper writes KL to uniform; the program's kl_loss_sym is not symmetric, it is KL(uniform || p). The
    retain learning rate is 0.001 * B / 64 for batches of B.
Needs: forget images
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from lethe.methods.common import batches, resized, set_lr, step, train

UNIFORM_LR = 0.005  # lethe: tune UNIFORM_LR = log(1e-5, 1e-1)
CONTRAST_LR = 3e-4  # lethe: tune CONTRAST_LR = log(1e-5, 1e-1)
LAST_CONTRAST_LR = 1e-6
T = 1.15  # lethe: tune T = uniform(0.5, 5)
LR = 0.001  # for batches of 64  # lethe: tune LR = log(1e-5, 1e-1)
ROUNDS = 8  # lethe: tune ROUNDS = int(1, 8)
RETAIN_BATCH = 0  # of the repairing epochs; 0: the loader's own
CONTRAST_BATCH = 0  # of the retain images that forget images are contrasted with; 0: the loader's own
MOMENTUM = 0.9
WEIGHT_DECAY = 0.01  # of the retain epochs  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {"winner": {"ROUNDS": 8, "RETAIN_BATCH": 256, "CONTRAST_BATCH": 256}}
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
    others = resized(retain_loader, CONTRAST_BATCH)
    net.train()
    for (forget_images, _), (retain_images, _) in zip(batches(forget_loader, net), batches(others, net), strict=False):
        share = (1 + math.cos(math.pi * min(state["done"], total) / total)) / 2
        set_lr(state["contrast"], LAST_CONTRAST_LR + (CONTRAST_LR - LAST_CONTRAST_LR) * share)
        step(state["contrast"], contrastive_loss(net(forget_images), net(retain_images).detach()))
        state["done"] += 1


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    loader = resized(retain, RETAIN_BATCH)
    rate = lr * (loader.batch_size or 64) / 64
    if "retain" not in state:  # one optimizer, momentum included, for all rounds
        state["retain"] = torch.optim.SGD(net.parameters(), lr=rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    train(net, loader, state["retain"], [rate] * epochs)


def uniform_loss(logits: Tensor) -> Tensor:
    """Return the mean KL divergence of the softmax from the uniform distribution, KL(uniform || p). logits: [n, C]."""
    n_classes = logits.shape[1]
    return ((-math.log(n_classes) - logits.log_softmax(1)) / n_classes).sum(1).mean()


def contrastive_loss(forget: Tensor, retain: Tensor) -> Tensor:
    """Return the mean of -log softmax of the logits' products over T. forget: [n, C]; retain: [m, C]."""
    return -(forget @ retain.T / T).log_softmax(1).mean()
