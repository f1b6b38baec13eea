"""Fisher forgetting: add noise to each weight, the more the less the retain set depends on it.

The diagonal of the Fisher information on the retain set says how much its outputs depend on each weight. Every weight
then gets Gaussian noise whose variance is ALPHA over that information, with caps. Weights that only the forget set
used are blurred; no training step follows. Where a whole class is forgotten, the classifier's weights of this class
are drawn again around 0.

Pseudo-code:
    F = mean over batches of retain examples of sum over classes c of mean p(c | x) * grad(mean ce(net(x), c))^2
    v = min(1 / (F + 1e-8), 1000), at most 100 where a tensor's first size is C
    v = ALPHA * v; matrices: averaged over the inputs
    rows of tensors with first size C of classes that only the forget set has: w = 0, v = CLASS_VARIANCE
    vectors, and with TENFOLD the classifier: v * 10
    w = w + sqrt(v) * N(0, 1)

Source: Golatkar et al. 2020 and their program; programs of Foster et al. 2024 and of Fan et al. 2024: ALPHA 3e-6.
Budget: C * SAMPLES / BATCH_SIZE backward passes. Over the whole retain set, as published, that is about C
    epochs and slower than retraining; SAMPLES bounds it.
Measured: the time of 10.69 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: Cadet et al. write "the fourth root of the Fisher information"; the programs take the standard deviation
    sqrt(ALPHA / F), as here. The programs use all retain examples;
    Fan et al. take batches of 32 for one example and ten times the variance in the classifier. Foster et al. and
    Fan et al. leave out what Golatkar et al. do where a whole class goes: CLASS_VARIANCE 0 is without it.
Needs: forget labels
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lethe.methods.common import batches, class_counts

ALPHA = 3e-6  # lethe: tune ALPHA = log(1e-9, 1e-3)
SAMPLES = 100  # lethe: tune SAMPLES = int(20, 1000)
BATCH_SIZE = 1  # lethe: tune BATCH_SIZE = int(1, 64)
TENFOLD = False  # lethe: tune TENFOLD = choice(False, True)
CLASS_VARIANCE = 1e-4  # of the weights of a class that is forgotten wholly; 0: they are treated as the others
PRESETS = {
    "selective-forgetting": {"ALPHA": 1e-6, "BATCH_SIZE": 1, "TENFOLD": True},
    "selective-synaptic-dampening": {"ALPHA": 1e-6, "BATCH_SIZE": 1, "CLASS_VARIANCE": 0.0},
    "salun": {"ALPHA": 3e-6, "BATCH_SIZE": 32, "TENFOLD": True, "CLASS_VARIANCE": 0.0},
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    net.eval()
    removed = removed_classes(net, retain_loader, forget_loader) if CLASS_VARIANCE else []
    information, n_classes = fisher_information(net, retain_loader, SAMPLES)
    with torch.no_grad():
        for parameter, values in zip(net.parameters(), information, strict=True):
            variance = noise_variance(values, n_classes, removed)
            if values.shape[:1] == (n_classes,):
                parameter[removed] = 0.0
            parameter.add_(variance.sqrt() * torch.randn_like(parameter))


def removed_classes(net: nn.Module, retain_loader: Any, forget_loader: Any) -> list[int]:
    """Return the classes that the forget set has and the retain set has not."""
    with torch.random.fork_rng(devices=[]):  # a pass over a loader draws its order
        forgotten, kept = (
            set(class_counts(loader, net).nonzero().flatten().tolist()) for loader in (forget_loader, retain_loader)
        )
    return sorted(forgotten - kept)


def fisher_information(net: nn.Module, loader: Any, n_samples: int) -> tuple[list[Tensor], int]:
    """Return the diagonal over random examples of the loader, one tensor a parameter, and the number of classes."""
    parameters = list(net.parameters())
    total, n_done, n_classes = [torch.zeros_like(parameter) for parameter in parameters], 0, 0
    for images, _ in batches(DataLoader(loader.dataset, batch_size=BATCH_SIZE, shuffle=True), net):
        logits = net(images)
        n_classes = logits.shape[1]
        for chosen, weight in zip(logits.log_softmax(1).mean(0), logits.softmax(1).mean(0).detach(), strict=True):
            gradients = torch.autograd.grad(-chosen, parameters, retain_graph=True, allow_unused=True)
            for summed, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    summed.add_(weight * gradient.square())
        n_done += 1
        if n_done * BATCH_SIZE >= n_samples:
            break
    return [summed / max(n_done, 1) for summed in total], n_classes


def noise_variance(information: Tensor, n_classes: int, removed: list[int]) -> Tensor:
    """Return the variance of the noise on a tensor of weights, of its shape. removed: classes that go wholly."""
    is_classifier = information.shape[:1] == (n_classes,)
    variance = ALPHA * (1 / (information + 1e-8)).clamp(max=1e2 if is_classifier else 1e3)
    if information.dim() > 1:
        variance = variance.mean(dim=1, keepdim=True).expand_as(information).clone()
    if is_classifier:
        variance[removed] = CLASS_VARIANCE
    return variance * 10 if information.dim() == 1 or (TENFOLD and is_classifier) else variance
