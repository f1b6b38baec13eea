"""WGA: gradient ascent that leaves a token alone once it is unlikely.

A token's loss is weighted by its own probability to the power BETA, so that what is forgotten pulls no further.
The loss is SatImp's with BETA1 = BETA and BETA2 = 0.

Pseudo-code:
    EPOCHS times: for each forget batch F and as many retain examples R: step AdamW on
        -GAMMA * mean over answer tokens of p^BETA * token loss (p = the token's probability, as a constant)
        + ALPHA * loss(R)

Source: Wang et al. 2025 (WGA), section 4; constants as in open-unlearning.
Budget: EPOCHS epochs over the forget set, and as many retain examples.
Deterministic: no
Differences: none known.
Needs: forget answers
"""

from typing import Any

from torch import Tensor, nn

from lethe.methods.text.common import Batch, answer_token_losses, mean_loss, train, weighted_ascent

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
BETA = 1.0  # lethe: tune BETA = uniform(0, 5)
GAMMA = 1.0  # lethe: tune GAMMA = uniform(0.05, 5)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    def loss(forget: Batch, retain: Batch) -> Tensor:
        ascent = weighted_ascent(answer_token_losses(net, forget), learnt=BETA, left=0)
        return GAMMA * ascent + ALPHA * mean_loss(net, retain)

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)
