"""Fisher forgetting: add noise to each weight, the more the less the retain set depends on it.

The diagonal of the Fisher information on the retain set says how much its outputs depend on each weight. Every weight
then gets Gaussian noise whose variance is ALPHA over that information, with caps. Weights that only the forget set
used are blurred; no training step follows.

Pseudo-code:
    F = mean over batches of retain examples of sum over classes c of mean p(c | x) * grad(mean ce(net(x), c))^2
    v = min(1 / (F + 1e-8), 1000), at most 100 where a tensor's first size is C
    matrices: v averaged over the inputs; vectors, and with TENFOLD the classifier: v * 10
    w = w + sqrt(ALPHA * v) * N(0, 1)

Source: Golatkar et al. 2020; program of Foster et al. 2024 and of Fan et al. 2024: ALPHA 3e-6.
Budget: C * SAMPLES / BATCH_SIZE backward passes. Over the whole retain set, as published, that is about C
    epochs and slower than retraining; SAMPLES bounds it.
Measured: the time of 10.69 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: Cadet et al. write "the fourth root of the Fisher information"; the programs take the standard deviation
    sqrt(ALPHA / F), as here. The programs use all retain examples;
    Fan et al. take batches of 32 for one example and ten times the variance in the classifier.
Needs: nothing
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lethe.methods.common import batches

ALPHA = 3e-6  # lethe: tune ALPHA = log(1e-9, 1e-3)
SAMPLES = 100  # lethe: tune SAMPLES = int(20, 1000)
BATCH_SIZE = 1  # lethe: tune BATCH_SIZE = int(1, 64)
TENFOLD = False  # lethe: tune TENFOLD = choice(False, True)
PRESETS = {
    "selective-synaptic-dampening": {"ALPHA": 1e-6, "BATCH_SIZE": 1},
    "salun": {"ALPHA": 3e-6, "BATCH_SIZE": 32, "TENFOLD": True},
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    net.eval()
    information, n_classes = fisher_information(net, retain_loader, SAMPLES)
    with torch.no_grad():
        for parameter, values in zip(net.parameters(), information, strict=True):
            parameter.add_(noise_variance(values, n_classes).sqrt() * torch.randn_like(parameter))


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


def noise_variance(information: Tensor, n_classes: int) -> Tensor:
    """Return the variance of the noise on a tensor of weights, of its shape."""
    is_classifier = information.shape[:1] == (n_classes,)
    variance = ALPHA * (1 / (information + 1e-8)).clamp(max=1e2 if is_classifier else 1e3)
    if information.dim() > 1:
        variance = variance.mean(dim=1, keepdim=True).expand_as(information)
        return variance * 10 if TENFOLD and is_classifier else variance
    return variance * 10
