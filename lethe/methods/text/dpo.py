"""Direct preference optimisation: prefer "I don't know" to the forgotten answers.

Pseudo-code:
    o = frozen copy; gain(x) = nll(o, x) - nll(net, x)
    EPOCHS times: for each forget batch F with refusals I and as many retain examples R: step AdamW on
        -2 / BETA * mean log sigmoid(BETA * (gain(I) - gain(F))) + ALPHA * loss(R)

Source: Rafailov et al. 2023 (DPO); Maini et al. 2024 (TOFU), section 4; the factor 2 / BETA as in open-unlearning.
Budget: twice EPOCHS epochs over the forget set with a second forward pass, and as many retain examples.
Deterministic: no
Differences: a question has one refusal, drawn when the data are made; the published programs draw one every time.
Needs: forget answers, refusals, second network
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.text.common import Batch, frozen_copy, mean_loss, refusals, sequence_nll, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
BETA = 0.1  # lethe: tune BETA = log(0.01, 1)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    original = frozen_copy(net)

    def loss(forget: Batch, retain: Batch) -> Tensor:
        gains = [sequence_nll(original, part) - sequence_nll(net, part) for part in (refusals(forget), forget)]
        return dpo_loss(*gains) + ALPHA * mean_loss(net, retain)

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)


def dpo_loss(preferred_gain: Tensor, forgotten_gain: Tensor) -> Tensor:
    """Return the loss from the gains in log probability over the original network, [n] each."""
    return -2 / BETA * functional.logsigmoid(BETA * (preferred_gain - forgotten_gain)).mean()
