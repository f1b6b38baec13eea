"""Negative preference optimisation: make the forgotten answers less likely than they were, and no more than that.

Ascent whose gradient fades once an answer is much less likely than under the original network.

Pseudo-code:
    o = frozen copy; nll(net, F) = summed loss of every answer
    EPOCHS times: for each forget batch F and as many retain examples R: step AdamW on
        -2 / BETA * mean log sigmoid(BETA * (nll(net, F) - nll(o, F))) + ALPHA * loss(R)

Source: Zhang et al. 2024 (NPO), equation 3 and section 3.2.
Budget: EPOCHS epochs over the forget set with a second forward pass, and as many retain examples.
Deterministic: no
Differences: none known.
Needs: forget answers, second network
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.text.common import Batch, frozen_copy, mean_loss, sequence_nll, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
BETA = 0.1  # lethe: tune BETA = log(0.01, 1)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    original = frozen_copy(net)

    def loss(forget: Batch, retain: Batch) -> Tensor:
        less_likely = npo_loss(sequence_nll(net, forget), sequence_nll(original, forget))
        return less_likely + ALPHA * mean_loss(net, retain)

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)


def npo_loss(nll: Tensor, original_nll: Tensor) -> Tensor:
    """Return the loss of forget answers from their summed losses, [n] each."""
    return -2 / BETA * functional.logsigmoid(BETA * (nll - original_nll)).mean()
