"""Sets of encoded answers, and the metrics that several tasks take from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.huggingface import membership, memorization
from lethe.huggingface.answer_scores import Floats, TokenScores, score_answers
from lethe.huggingface.generated_text import GeneratedText
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import MetricValue, over_examples

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
    model.define("exact_memorization", lambda: over_examples(memorization.exact_memorization(forget().scores)))
    model.define("extraction_strength", lambda: over_examples(memorization.extraction_strength(forget().scores)))


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
    define("mia_zlib", lambda side: membership.zlib_score(model, side.scores, side.answers))
    define("mia_min_k", lambda side: membership.min_k(side.scores))
    define("mia_min_k_plus_plus", lambda side: membership.min_k_plus_plus(side.scores))
    define("mia_gradnorm", lambda side: membership.gradient_norms(model, side.answers))
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
    return MetricValue(membership.area_under_curve(forget, holdout), sides=sides)


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
    return MetricValue(membership.privacy_leakage(min_k.value, retain_auc))
