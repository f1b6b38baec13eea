"""Bad teacher: imitate a random network on the forget set and the original one on the retain set.

Two frozen teachers are made: the original network, and one of the same architecture with fresh random weights. The
network is trained on a part of the retain set and the whole forget set together; each example's target is the softmax
of its own teacher. The forget set is driven towards the outputs of a network that knows nothing.

Pseudo-code:
    good, bad = frozen copies, bad drawn again; one pass over SHARE of the retain set and the forget set, shuffled:
        t = softmax(bad(x) / T) on forget examples, softmax(good(x) / T) on the others
        step Adam on mean over examples and classes of t * (log t - log softmax(net(x) / T))

Source: Chundawat et al. 2023; as in Foster et al. 2024 and the MIAU paper: Adam 1e-4, 1 epoch, SHARE 0.3, T 1.
Budget: 5/3 * EPOCHS * (SHARE + |S| / |R|) epochs over the retain set (two more forward passes).
Measured: the time of 1.05 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the texts write a KL divergence; the programs average it over examples and classes, so the learning rate
    is C times smaller than it looks, as here. The program of Cadet et al. always takes a ResNet-18 as bad teacher.
Needs: forget images, second network
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import frozen_copy, mixed, step

LR = 1e-4  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 1  # lethe: tune EPOCHS = int(1, 6)
SHARE = 0.3  # lethe: tune SHARE = uniform(0, 1)
BATCH_SIZE = 0  # 0: the loader's own
T = 1.0  # lethe: tune T = uniform(0.5, 5)
PRESETS = {"bad-teaching": {"LR": 1e-4, "EPOCHS": 1, "SHARE": 0.3, "T": 1.0, "BATCH_SIZE": 256}}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    good = frozen_copy(net)
    bad = frozen_copy(net)
    reinitialise(bad)
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    net.train()
    for _ in range(EPOCHS):
        for images, _, is_forget, _ in mixed(net, retain_loader, forget_loader, share=SHARE, batch_size=BATCH_SIZE):
            step(optimizer, two_teacher_loss(net(images), good(images), bad(images), is_forget))
    net.eval()


def two_teacher_loss(student: Tensor, good: Tensor, bad: Tensor, is_forget: Tensor) -> Tensor:
    """Return KL(teacher || student) averaged over examples and classes. Logits: [n, C]; is_forget: [n]."""
    teacher = torch.where(is_forget.bool()[:, None], bad, good)
    target = (teacher / T).log_softmax(1)
    return functional.kl_div((student / T).log_softmax(1), target, reduction="none", log_target=True).mean()


def reinitialise(net: nn.Module) -> None:
    """Draw every weight again: by its layer's own rule, else (a transformer's tokens) from N(0, 0.02^2)."""
    for module in net.modules():
        own_rule = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(own_rule):
            own_rule()
            continue
        for parameter in module.parameters(recurse=False):
            nn.init.normal_(parameter, std=0.02)
