"""SimNPO: negative preference optimisation by the mean loss of a token, without a copy of the original network.

Pseudo-code:
    EPOCHS times: for each forget batch F and as many retain examples R: step AdamW on
        -GAMMA * 2 / BETA * mean log sigmoid(BETA * (mean token loss of each answer - DELTA)) + ALPHA * loss(R)

Source: Fan et al. 2024 (SimNPO); constants as in open-unlearning.
Budget: EPOCHS epochs over the forget set, and as many retain examples.
Deterministic: no
Differences: none known.
Needs: forget answers
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.text.common import Batch, mean_loss, n_tokens, sequence_nll, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
BETA = 4.5  # lethe: tune BETA = uniform(1, 10)
DELTA = 0.0  # lethe: tune DELTA = uniform(0, 2)
GAMMA = 0.125  # lethe: tune GAMMA = uniform(0.05, 1)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    def loss(forget: Batch, retain: Batch) -> Tensor:
        less_likely = simnpo_loss(sequence_nll(net, forget), n_tokens(forget))
        return GAMMA * less_likely + ALPHA * mean_loss(net, retain)

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)


def simnpo_loss(nll: Tensor, tokens: Tensor) -> Tensor:
    """Return the loss of forget answers from their summed losses and their numbers of tokens, [n] each."""
    return -2 / BETA * functional.logsigmoid(BETA * (nll / tokens - DELTA)).mean()
