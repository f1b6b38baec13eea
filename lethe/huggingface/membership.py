"""Membership attacks on forgotten answers, as open-unlearning defines them (src/evals/metrics/mia, privacy.py).

Every score is like a loss: low for members. The area under the ROC curve has the holdout as positive class, so that 1
means that the forget set looks like training data.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import log_softmax

from lethe.huggingface.answer_scores import Floats, TokenScores, pad
from lethe.huggingface.generated_text import decode_as_configured
from lethe.huggingface.memorization import SMALL
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded

MIN_K = 0.4


def min_k(scores: TokenScores, *, share: float = MIN_K) -> Floats:
    """Return minus the mean of the smallest log probabilities (Shi et al. 2024); 0 without a token."""
    return _mean_of_smallest(scores.log_probability, share)


def min_k_plus_plus(scores: TokenScores, *, share: float = MIN_K) -> Floats:
    """Return Min-K%++ (Zhang et al. 2025): the same of log probabilities standardised over the vocabulary."""
    standardised = [
        (found - mean) / np.sqrt(variance)
        for found, mean, variance in zip(scores.log_probability, scores.mean, scores.variance, strict=True)
    ]
    return _mean_of_smallest(standardised, share)


def zlib_score(model: LanguageModel, scores: TokenScores, answers: Sequence[Encoded]) -> Floats:
    """Return the loss over the bytes of the compressed scored text."""
    texts = decode_as_configured(model, [answer.ids[answer.start :] for answer in answers])
    sizes = np.array([len(zlib.compress(text.encode())) for text in texts], np.float64)
    return np.divide(scores.loss, sizes)


def gradient_norms(model: LanguageModel, answers: Sequence[Encoded]) -> Floats:
    """Return the mean over parameter tensors of each tensor's 2-norm of the loss's gradient.

    The loss leaves the last token out. The network is in training mode, as in open-unlearning, so dropout acts.
    """
    network: Any = model.network  # transformers leaves train and eval untyped
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    found = []
    network.train()
    try:
        for answer in answers:
            if model.not_finite:
                found.append(0.0)
                continue
            ids, mask = (tensor.to(model.device) for tensor in pad([answer.ids], model.padding_id))
            logits = network(input_ids=ids, attention_mask=mask, use_cache=False).logits[0]
            targets = ids[0, answer.start : -1]
            rows = log_softmax(logits[answer.start - 1 : len(answer.ids) - 2].float(), dim=-1)
            loss = -rows.gather(1, targets[:, None]).mean()
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            found.append(float(torch.stack([g.norm(p=2) for g in gradients if g is not None]).mean()))
            model.on_progress(1)
    finally:
        network.eval()
    return np.array(found)


def area_under_curve(forget: Floats, holdout: Floats) -> float:
    """Return the probability that a holdout score exceeds a forget score, ties counted half."""
    ordered = np.sort(forget)
    below, not_above = (np.searchsorted(ordered, holdout, side=side) for side in ("left", "right"))
    return float((below + not_above).sum() / (2 * len(forget) * len(holdout)))


def privacy_leakage(auc: float, retain_auc: float) -> float:
    """Return MUSE's privacy leakage in per cent from two areas under Min-K%'s curve (Shi et al. 2025, section 3.2)."""
    return ((1 - auc) - (1 - retain_auc)) / (1 - retain_auc + SMALL) * 100


def _mean_of_smallest(values: Sequence[Floats], share: float) -> Floats:
    return np.array([-np.sort(row)[: max(1, int(len(row) * share))].mean() if len(row) else 0.0 for row in values])
