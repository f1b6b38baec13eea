"""SatImp: gradient ascent weighted by how well a token is learnt, and how much there is left to learn.

Pseudo-code:
    EPOCHS times: for each forget batch F and as many retain examples R: step AdamW on
        -GAMMA * mean over answer tokens of p^BETA1 * (1 - p)^BETA2 * token loss + ALPHA * loss(R)
        (p = the token's probability, as a constant)

Source: Yang et al. 2025 (SatImp), section 5; constants as in open-unlearning.
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
BETA1 = 5.0  # lethe: tune BETA1 = uniform(0, 10)
BETA2 = 1.0  # lethe: tune BETA2 = uniform(0, 5)
GAMMA = 0.1  # lethe: tune GAMMA = uniform(0.05, 5)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    def loss(forget: Batch, retain: Batch) -> Tensor:
        ascent = weighted_ascent(answer_token_losses(net, forget), learnt=BETA1, left=BETA2)
        return GAMMA * ascent + ALPHA * mean_loss(net, retain)

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)
