"""Fisher forgetting: add noise to each weight, the more the less the retain set depends on it.

The diagonal of the Fisher information on the retain set says how much its outputs depend on each weight. Every weight
then gets Gaussian noise whose variance is ALPHA over that information, with caps. Weights that only the forget set
used are blurred; no training step follows.

Pseudo-code:
    F = mean over SAMPLES retain examples of sum over classes c of p(c | x) * grad(ce(net(x), c))^2
    v = min(1 / (F + 1e-8), 1000), at most 100 where a tensor's first size is C
    matrices: v averaged over the inputs; vectors: v * 10; w = w + sqrt(ALPHA * v) * N(0, 1)

Source: Golatkar et al. 2020; program of Foster et al. 2024 and of Fan et al. 2024: ALPHA 3e-6.
Budget: C * SAMPLES backward passes of one example each. Over the whole retain set, as published, that is about C
    epochs and slower than retraining; SAMPLES bounds it.
Measured: the time of 13.79 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: Cadet et al. write "the fourth root of the Fisher information"; the programs take the standard deviation
    sqrt(ALPHA / F), as here. The programs use all retain examples.
Needs: nothing
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

ALPHA = 3e-6  # lethe: tune ALPHA = log(1e-9, 1e-3)
SAMPLES = 100  # lethe: tune SAMPLES = int(20, 1000)


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
    for images, _ in batches(DataLoader(loader.dataset, batch_size=1, shuffle=True), net):
        logits = net(images)
        n_classes = logits.shape[1]
        log_probabilities = logits.log_softmax(1)[0]
        for chosen in log_probabilities:
            gradients = torch.autograd.grad(-chosen, parameters, retain_graph=True, allow_unused=True)
            for summed, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    summed.add_(chosen.detach().exp() * gradient.square())
        n_done += 1
        if n_done == n_samples:
            break
    return [summed / max(n_done, 1) for summed in total], n_classes


def noise_variance(information: Tensor, n_classes: int) -> Tensor:
    """Return the variance of the noise on a tensor of weights, of its shape."""
    ceiling = 1e2 if information.shape[:1] == (n_classes,) else 1e3
    variance = ALPHA * (1 / (information + 1e-8)).clamp(max=ceiling)
    if information.dim() > 1:
        return variance.mean(dim=1, keepdim=True).expand_as(information)
    return variance * 10


def batches(loader: Any, net: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images, labels) of one pass on the network's device; BatchNorm cannot train on a batch of one."""
    device = next(net.parameters()).device
    skips_single = net.training and any(isinstance(module, _BatchNorm) for module in net.modules())
    for sample in loader:
        if not (skips_single and len(sample["image"]) == 1):
            yield sample["image"].to(device), sample["label"].to(device)
