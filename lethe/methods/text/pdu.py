"""PDU: flatten the outputs on the forgotten answers, as far as the retain loss stays below a bound.

The weight of the retain loss is the dual variable of that bound: it rises while the loss is above it, and falls below.

Pseudo-code:
    a = ALPHA
    EPOCHS times: for each forget batch F and as many retain examples R:
        step AdamW on GAMMA * mean over answer tokens of (largest logit - mean logit)^2 + a * (loss(R) - BOUND)
        after WARM_UP epochs: a = max(0, a + DUAL_STEP * (loss(R) - BOUND))

Source: Entesari et al. 2025 (constrained entropic unlearning), sections 3 and 4; constants as for TOFU there.
Budget: EPOCHS epochs over the forget set, and as many retain examples.
Deterministic: no
Differences: open-unlearning flattens at the questions' tokens and the padding too: PADDING. It can also change the
    weight once an epoch.
Needs: forget answers
"""

from typing import Any

import torch
from torch import Tensor, nn

from lethe.methods.text.common import Batch, compute_logits, mean_loss, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 10  # lethe: tune EPOCHS = int(1, 30)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
BOUND = 0.3  # lethe: tune BOUND = log(0.05, 5)
ALPHA = 100.0  # lethe: tune ALPHA = log(1, 200)
GAMMA = 1.0  # lethe: tune GAMMA = uniform(0.05, 5)
DUAL_STEP = 5.0  # lethe: tune DUAL_STEP = log(0.1, 10)
WARM_UP = 5  # epochs with a fixed weight
PADDING = False  # True: the questions' tokens and the padding count too
PRESETS = {
    "open-unlearning": {"PADDING": True},
    "muse-news": {"PADDING": True, "BOUND": 1.5, "ALPHA": 50.0, "DUAL_STEP": 1.0, "WARM_UP": 3},
    "muse-books": {"PADDING": True, "BOUND": 0.1, "ALPHA": 50.0, "DUAL_STEP": 1.0, "WARM_UP": 3},
}
PRESET_FILES = {
    "open-unlearning": "locuslab/open-unlearning, src/trainer/unlearn/pdu.py and community/methods/PDU/run.sh",
    "muse-news": "locuslab/open-unlearning, community/methods/PDU/run.sh",
    "muse-books": "locuslab/open-unlearning, community/methods/PDU/run.sh",
}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    state = {"weight": ALPHA, "n_done": 0}

    def loss(forget: Batch, retain: Batch) -> Tensor:
        excess = mean_loss(net, retain) - BOUND
        total = GAMMA * flatness_loss(compute_logits(net, forget), forget["labels"]) + state["weight"] * excess
        if state["n_done"] >= WARM_UP * len(forget_loader):
            state["weight"] = max(0.0, state["weight"] + DUAL_STEP * excess.item())
        state["n_done"] += 1
        return total

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY, state=state)


def flatness_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared distance of the largest from the mean logit. Logits: [n, length, vocabulary]."""
    counted = logits.flatten(0, 1) if PADDING else logits[:, :-1][labels[:, 1:] != -100]
    return (torch.amax(counted, -1) - counted.mean(-1)).square().mean()
