"""Sets of encoded answers, and the metrics of memorization and membership that several tasks take from them.

Attacks are as open-unlearning defines them (src/evals/metrics/mia, privacy.py). Every score is like a loss: low for
members. The area under the ROC curve has the holdout as positive class, so that 1 means that the forget set looks like
training data.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import log_softmax

from lethe.huggingface import answer_scores
from lethe.huggingface.answer_scores import SMALL, Floats, TokenScores, pad, score_answers
from lethe.huggingface.generated_text import GeneratedText, decode_as_configured
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import MetricValue, over_examples

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


MEMORIZATION = ("exact_memorization", "extraction_strength")
MEMBERSHIP = (
    "mia_gradnorm", "mia_loss", "mia_min_k", "mia_min_k_plus_plus", "mia_reference", "mia_zlib", "privleak",
)  # fmt: skip
NO_REFERENCE = "needs a model that was trained without the forget set: give --retain or --retain-logs"


@dataclass(frozen=True)
class ScoredAnswers:
    """Answers of one set with their scores. shape: (questions,) or (questions, answers of each)."""

    answers: Sequence[Encoded]
    scores: TokenScores
    shape: tuple[int, ...]

    @property
    def loss(self) -> Floats:
        return self.scores.loss.reshape(self.shape)

    def probability(self) -> MetricValue:
        return over_examples(np.exp(-self.loss), name="prob", avg_loss=self.loss)


def scored(model: LanguageModel, answers: Sequence[Encoded]) -> ScoredAnswers:
    return ScoredAnswers(answers, score_answers(model, answers), (len(answers),))


def scored_groups(model: LanguageModel, groups: Sequence[Sequence[Encoded]]) -> ScoredAnswers:
    """Return the scores of several answers to each question; every question has the same number."""
    answers = [answer for group in groups for answer in group]
    return ScoredAnswers(answers, score_answers(model, answers), (len(groups), len(groups[0])))


def define_memorization(model: LanguageModel, forget: Callable[[], ScoredAnswers]) -> None:
    """Define the shares of the forget set that are memorised. forget: is called once per metric."""
    model.define("exact_memorization", lambda: over_examples(answer_scores.exact_memorization(forget().scores)))
    model.define("extraction_strength", lambda: over_examples(answer_scores.extraction_strength(forget().scores)))


def define_membership(
    model: LanguageModel,
    forget: Callable[[], ScoredAnswers],
    holdout: Callable[[], ScoredAnswers],
    reference: Reference | None,
) -> None:
    """Define the six attacks on the forget set and the privacy leakage of the third."""

    def define(name: str, score: Callable[[ScoredAnswers], Floats]) -> None:
        model.define(name, lambda: _attack(score(forget()), score(holdout())))

    define("mia_loss", lambda side: side.scores.loss)
    define("mia_zlib", lambda side: zlib_score(model, side.scores, side.answers))
    define("mia_min_k", lambda side: min_k(side.scores))
    define("mia_min_k_plus_plus", lambda side: min_k_plus_plus(side.scores))
    define("mia_gradnorm", lambda side: gradient_norms(model, side.answers))
    model.define("mia_reference", lambda: _reference_attack(forget, holdout, reference))
    model.define("privleak", lambda: _privacy_leakage(model.metric("mia_min_k"), reference))


def rouge_metric(texts: Sequence[GeneratedText], *, recall: bool) -> MetricValue:
    """Return the mean ROUGE-L recall or F1 of generated texts, with the texts."""
    values = np.array([text.rouge_l_recall if recall else text.rouge_l_f1 for text in texts])
    return over_examples(
        values,
        name="rougeL_recall" if recall else "rougeL_f1",
        input=[text.prompt for text in texts],
        ground_truth=[text.truth for text in texts],
        generation=[text.text for text in texts],
    )


def _attack(forget: Floats, holdout: Floats) -> MetricValue:
    sides = {"forget": {"score": forget}, "holdout": {"score": holdout}}
    if np.isnan(np.concatenate([forget, holdout])).any():
        return MetricValue(None, sides=sides, reason="a text has no token that is scored")
    return MetricValue(area_under_curve(forget, holdout), sides=sides)


def _reference_attack(
    forget: Callable[[], ScoredAnswers], holdout: Callable[[], ScoredAnswers], reference: Reference | None
) -> MetricValue:
    if reference is None or reference.model is None:
        return MetricValue(None, reason="compares with a reference model: give --retain DIR")
    sides = (forget(), holdout())
    return _attack(*(side.scores.loss - score_answers(reference.model, side.answers).loss for side in sides))


def _privacy_leakage(min_k: MetricValue, reference: Reference | None) -> MetricValue:
    retain_auc = reference.value("mia_min_k") if reference else 0.5
    if min_k.value is None or retain_auc is None:
        return MetricValue(None, reason="the retain logs hold no mia_min_k")
    return MetricValue(privacy_leakage(min_k.value, retain_auc))
