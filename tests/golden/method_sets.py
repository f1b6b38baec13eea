"""Golden values of the methods' losses and weight operations: what recomputes each set.

Each function takes the inputs (keys without `in_`) and returns the values (keys without `out_`), for any seed and size.
"""

from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods import bad_teacher, cfw, fcs, kde, prmq, scrub, ssd
from lethe.methods.text import common, dpo, kl_min, npo, simnpo
from tests.golden.golden_set import Arrays, GoldenSet

ROUNDED_IN_FLOAT32 = {
    "method_losses": frozenset(
        {
            "fcs_uniform_kl",
            "fcs_contrastive_T1_15",
            "cfw_weighted_ce",
            "prmq_loss",
            "kde_kl_T5",
            "kde_soft_ce_T5",
            "bt_loss_T1",
            "scrub_distill_kl_T2",
            "npo_beta0_1",
            "dpo_beta0_1",
            "simnpo_beta4_5",
            "wga_beta1",
            "retain_kl",
        }
    ),
    "ssd_dampening": frozenset({"full_importance", "forget_importance", "weights"}),
}


def method_losses(arrays: Arrays) -> Mapping[str, Any]:
    given = {name: torch.from_numpy(np.asarray(values)) for name, values in arrays.items()}
    losses = image_losses(given) | language_losses(given)
    return {name: loss.numpy() for name, loss in losses.items()}


def image_losses(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    student, teacher, labels = given["student"], given["teacher"], given["labels"]
    weights = torch.full((student.shape[1],), cfw.OTHERS)
    weights[0] = 1.0  # the published weights are for data whose largest class is the first
    return {
        "fcs_uniform_kl": fcs.uniform_loss(student),
        "fcs_contrastive_T1_15": fcs.contrastive_loss(student, given["retain_outputs"]),
        "cfw_weighted_ce": cfw.weighted_loss(student, labels, weights),
        "prmq_loss": prmq.certainty_loss(student, teacher, labels, given["prmq_class_weights"]),
        "kde_kl_T5": kde.soft_kl(student, teacher),
        "kde_soft_ce_T5": kde.soft_cross_entropy(student, teacher),
        "bt_loss_T1": bad_teacher.two_teacher_loss(student, teacher, given["bad_teacher"], given["is_forget"]),
        "scrub_distill_kl_T2": scrub_distillation(student, teacher),
    }


def scrub_distillation(student: Tensor, teacher: Tensor) -> Tensor:
    with mock.patch.object(scrub, "T", 2.0):
        return scrub.distillation(student, teacher)


def language_losses(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    logits, reference, labels = given["lm_logits"], given["lm_reference"], given["lm_labels"]
    chosen = labels.roll(1, dims=0)  # another sequence's answer, preferred over the one to forget
    own, other = (common.of_tokens(values, labels).sum(1) for values in (logits, reference))
    gains = [
        common.of_tokens(reference, answer).sum(1) - common.of_tokens(logits, answer).sum(1)
        for answer in (chosen, labels)
    ]
    return {
        "batch_nll": own,
        "npo_beta0_1": npo.npo_loss(own, other),
        "dpo_beta0_1": dpo.dpo_loss(*gains),
        "simnpo_beta4_5": simnpo.simnpo_loss(own, (labels[:, 1:] != -100).sum(1)),
        "wga_beta1": common.weighted_ascent(
            common.of_tokens(logits, labels)[labels[:, 1:] != -100], learnt=1.0, left=0.0
        ),
        "retain_kl": kl_min.retain_kl(logits, reference),
    }


class Perceptron(nn.Module):
    """The network of the set: one hidden layer of tanh, its weights given in one vector."""

    def __init__(self, weights: Tensor, *, n_inputs: int, n_classes: int) -> None:
        super().__init__()
        n_hidden = (len(weights) - n_classes) // (n_inputs + 1 + n_classes)
        self.hidden = nn.Linear(n_inputs, n_hidden)
        self.output = nn.Linear(n_hidden, n_classes)
        nn.utils.vector_to_parameters(weights.clone(), self.parameters())

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(functional.tanh(self.hidden(x)))
        return logits


def _count_classes(arrays: Arrays) -> int:
    """Return how many outputs the network has: as many as labels, or more where the last classes do not occur."""
    n_weights, n_inputs = arrays["weights"].size, arrays["x"].shape[1]
    counts = range(int(arrays["y"].max()) + 1, n_weights)
    return next(count for count in counts if (n_weights - count) % (n_inputs + 1 + count) == 0)


def ssd_dampening(arrays: Arrays) -> Mapping[str, Any]:
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    net = Perceptron(torch.from_numpy(arrays["weights"]), n_inputs=x.shape[1], n_classes=_count_classes(arrays))
    n_forget, size = int(arrays["n_forget"]), int(arrays["batch"])
    full = ssd.importance(net, zip(torch.split(x, size), torch.split(y, size), strict=True))
    forget = ssd.importance(net, zip(torch.split(x[:n_forget], size), torch.split(y[:n_forget], size), strict=True))
    for parameter, whole, part in zip(net.parameters(), full, forget, strict=True):
        ssd.dampen(parameter, whole, part, alpha=float(arrays["alpha"]), factor=float(arrays["lambda"]))
    return {
        "full_importance": torch.cat([tensor.flatten() for tensor in full]).numpy(),
        "forget_importance": torch.cat([tensor.flatten() for tensor in forget]).numpy(),
        "weights": nn.utils.parameters_to_vector(net.parameters()).detach().numpy(),
    }


METHOD_SETS: dict[str, GoldenSet] = {
    "method_losses": GoldenSet(method_losses, float32=ROUNDED_IN_FLOAT32["method_losses"]),
    "ssd_dampening": GoldenSet(ssd_dampening, float32=ROUNDED_IN_FLOAT32["ssd_dampening"]),
}
