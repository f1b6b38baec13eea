"""L1-sparse finetuning: train on the retain set with a penalty on the sum of absolute weights.

The cross-entropy of the retain set is joined by ALPHA times the L1 norm of all parameters. The penalty falls linearly
to zero, so the last epochs restore the accuracy. A sparser network has less capacity to hold single examples.

Pseudo-code:
    for e in 0..EPOCHS-1: a = ALPHA * (1 - e / (EPOCHS - EPOCHS_WITHOUT)), 0 in the last EPOCHS_WITHOUT
        one pass of SGD over the retain set on ce(net(x), y) + a * sum |w|

Source: Jia et al. 2023; Fan et al. 2024, FT_l1; Triantafillou et al. 2024: best learning rate 1e-3, ALPHA 1e-4.
Budget: EPOCHS epochs over the retain set.
Measured: the time of 4.44 epochs of finetuning; retraining takes 20 (docs/methods/cost.md).
Deterministic: no
Differences: the text speaks of weights; the program counts BatchNorm and biases too, as here.
Needs: nothing
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.common import annealed, train

LR = 1e-3  # lethe: tune LR = log(1e-5, 1e-1)
EPOCHS = 4  # lethe: tune EPOCHS = int(1, 6)
ANNEALING = "constant"  # lethe: tune ANNEALING = choice("constant", "cosine")
ALPHA = 1e-4  # lethe: tune ALPHA = log(1e-5, 1e-1)
EPOCHS_WITHOUT = 0  # lethe: tune EPOCHS_WITHOUT = int(0, 3)
SCHEDULE = "repair"
REPAIR_EPOCHS, REPAIR_LR = EPOCHS, LR
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
PRESETS = {"salun": {"LR": 0.01, "EPOCHS": 10, "ALPHA": 5e-4, "EPOCHS_WITHOUT": 0}}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    repair(net, retain_loader, forget_loader, val_loader, {}, REPAIR_EPOCHS, REPAIR_LR)
    net.eval()


def repair(net: nn.Module, retain: Any, forget: Any, val: Any, state: dict[str, Any], epochs: int, lr: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    for epoch, rate in enumerate(annealed(lr, epochs, ANNEALING)):
        weight = penalty_weight(epoch, epochs)

        def penalised(logits: Tensor, labels: Tensor, images: Tensor, weight: float = weight) -> Tensor:
            return functional.cross_entropy(logits, labels) + weight * l1_norm(net)

        train(net, retain, optimizer, [rate], penalised)


def penalty_weight(epoch: int, epochs: int) -> float:
    """Return the weight of the L1 norm in an epoch; it falls linearly and is 0 in the last EPOCHS_WITHOUT."""
    penalised = epochs - EPOCHS_WITHOUT
    return ALPHA * (1 - epoch / penalised) if epoch < penalised else 0.0


def l1_norm(net: nn.Module) -> Tensor:
    return torch.stack([parameter.abs().sum() for parameter in net.parameters()]).sum()
