"""Losses by which language models are made to forget. For text competitions; torch only.

Logits are [n, length, vocabulary]. Labels are [n, length], IGNORED where a token does not count; the label at position
t is predicted by the logits at t - 1.
"""

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each token but the first, 0 where it does not count: [n, length - 1]."""
    return functional.cross_entropy(
        logits[:, :-1].transpose(1, 2), labels[:, 1:], ignore_index=IGNORED, reduction="none"
    )


def sequence_nll(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the summed cross-entropy of each sequence's tokens: [n]. Source: Maini et al. 2024 (TOFU)."""
    return token_losses(logits, labels).sum(1)


def npo_loss(nll: Tensor, reference_nll: Tensor, *, beta: float) -> Tensor:
    """Return the loss of negative preference optimisation on forget sequences.

    nll, reference_nll: [n], of the model and of the frozen original. Source: Zhang et al. 2024 (NPO), equation 3.
    """
    return -2 / beta * functional.logsigmoid(beta * (nll - reference_nll)).mean()


def dpo_loss(
    chosen_nll: Tensor,
    chosen_reference_nll: Tensor,
    rejected_nll: Tensor,
    rejected_reference_nll: Tensor,
    *,
    beta: float,
) -> Tensor:
    """Return the loss of direct preference optimisation: the chosen answers over the rejected (forget) ones; all [n].

    Source: Rafailov et al. 2023, with NPO's factor 2 / beta as in open-unlearning.
    """
    chosen = chosen_reference_nll - chosen_nll
    rejected = rejected_reference_nll - rejected_nll
    return -2 / beta * functional.logsigmoid(beta * (chosen - rejected)).mean()


def simnpo_loss(nll: Tensor, n_tokens: Tensor, *, beta: float, delta: float = 0.0) -> Tensor:
    """Return NPO's loss without a reference model, by the mean loss of a token. Source: Fan et al. 2024 (SimNPO)."""
    return -2 / beta * functional.logsigmoid(beta * (nll / n_tokens - delta)).mean()


def weighted_ascent_loss(logits: Tensor, labels: Tensor, *, beta: float) -> Tensor:
    """Return minus the mean token loss, each token weighted by its probability to the power of beta.

    Source: Wang et al. 2025 (WGA).
    """
    losses = token_losses(logits, labels)
    weights = torch.exp(-losses).detach() ** beta
    return -(weights * losses)[labels[:, 1:] != IGNORED].mean()


def retain_kl(logits: Tensor, reference_logits: Tensor) -> Tensor:
    """Return the mean over all tokens of KL(reference || model). Source: Maini et al. 2024 (TOFU), KL minimisation."""
    n_classes = logits.shape[-1]
    own = logits.log_softmax(-1).reshape(-1, n_classes)
    reference = reference_logits.log_softmax(-1).reshape(-1, n_classes)
    return functional.kl_div(own, reference, reduction="batchmean", log_target=True)
