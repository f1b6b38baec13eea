"""UNDIAL: learn from the original network's own outputs with the forgotten token made less likely.

Pseudo-code:
    o = frozen copy
    EPOCHS times: for each forget batch F: t = softmax(o(F) - BETA at each answer token's own entry)
        step AdamW on the mean cross-entropy of net(F) with t over the answer tokens, + ALPHA * loss(R) if ALPHA > 0

Source: Dong et al. 2025 (UNDIAL), section 3; constants as in open-unlearning.
Budget: EPOCHS epochs over the forget set with a second forward pass, and as many retain examples if ALPHA > 0.
Deterministic: no
Differences: open-unlearning averages over the questions' tokens and the padding too, where it lowers the entry -100
    counted from the vocabulary's end: PADDING; here the answers' tokens alone.
Needs: forget answers, second network
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.text.common import Batch, compute_logits, frozen_copy, mean_loss, train

LR = 1e-4  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
BETA = 10.0  # lethe: tune BETA = uniform(1, 20)
ALPHA = 0.0  # lethe: tune ALPHA = uniform(0, 5)
PADDING = False  # True: the questions' tokens and the padding count too
PRESETS = {"open-unlearning": {"PADDING": True}}
PRESET_FILES = {"open-unlearning": "locuslab/open-unlearning, src/trainer/utils.py (compute_undial_loss)"}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    original = frozen_copy(net)

    def loss(forget: Batch, retain: Batch) -> Tensor:
        distance = undial_loss(compute_logits(net, forget), compute_logits(original, forget), forget["labels"])
        return distance + ALPHA * mean_loss(net, retain) if ALPHA else distance

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)


def undial_loss(logits: Tensor, original_logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy with the lowered targets over labelled tokens. Logits: [n, length, vocabulary]."""
    if PADDING:  # a label of -100 is then the entry that far from the vocabulary's end
        labels = labels % logits.shape[-1]
    used = labels[:, 1:] != -100
    own, teacher, answer = logits[:, :-1][used], original_logits[:, :-1][used], labels[:, 1:][used]
    lowered = teacher - BETA * functional.one_hot(answer, teacher.shape[-1])
    return functional.cross_entropy(own, lowered.softmax(-1))
