"""KL minimisation: raise the loss of the forgotten answers, keep the outputs on the retain set.

Pseudo-code:
    o = frozen copy
    EPOCHS times: for each forget batch F and as many retain examples R:
        step AdamW on ALPHA * mean over tokens of KL(o(R) || net(R)) - loss(F)

Source: Maini et al. 2024 (TOFU), section 4, KL minimisation.
Budget: EPOCHS epochs over the forget set, and as many retain examples with a second forward pass.
Deterministic: no
Differences: the published loss counts padding too; here real tokens alone, without PADDING.
Needs: forget answers, second network
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.text.common import Batch, compute_logits, frozen_copy, mean_loss, train

LR = 1e-5  # lethe: tune LR = log(1e-6, 1e-2)
EPOCHS = 5  # lethe: tune EPOCHS = int(1, 10)
WEIGHT_DECAY = 0.01  # lethe: tune WEIGHT_DECAY = log(1e-5, 1e-1)
ALPHA = 1.0  # lethe: tune ALPHA = uniform(0, 5)
PADDING = False  # True: the retain loss counts padding too
PRESETS = {"open-unlearning": {"PADDING": True}}
PRESET_FILES = {"open-unlearning": "locuslab/open-unlearning, src/trainer/utils.py (compute_kl_divergence)"}


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    original = frozen_copy(net)

    def loss(forget: Batch, retain: Batch) -> Tensor:
        counted = torch.ones_like(retain["labels"]) if PADDING else retain["attention_mask"]
        kept = retain_kl(compute_logits(net, retain)[counted.bool()], compute_logits(original, retain)[counted.bool()])
        return ALPHA * kept - mean_loss(net, forget)

    train(net, loss, forget_loader, retain_loader, lr=LR, epochs=EPOCHS, weight_decay=WEIGHT_DECAY)


def retain_kl(logits: Tensor, reference: Tensor) -> Tensor:
    """Return the mean over tokens of KL(reference || logits). Shapes [..., vocabulary]."""
    own, target = (values.log_softmax(-1).flatten(0, -2) for values in (logits, reference))
    return functional.kl_div(own, target, reduction="batchmean", log_target=True)
