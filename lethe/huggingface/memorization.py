"""Statistics of a set of answers, as open-unlearning defines them (src/evals/metrics/memorization.py)."""

from typing import Literal

import numpy as np

from lethe.huggingface.answer_scores import Floats, TokenScores

SMALL = 1e-10  # added to denominators by open-unlearning
Aggregate = Literal["closer_to_1_better", "true_better", "prob_mean"]


def mean_over_answers(values: Floats) -> Floats:
    """Return one value per question: the mean over the further axes (wrong answers)."""
    return np.asarray(values.mean(axis=tuple(range(1, values.ndim))), np.float64)


def normalised_probability(correct: Floats, wrong: Floats) -> Floats:
    """Return p / (p + sum of the wrong answers' p). correct: (n,). wrong: (n, k). All are per token."""
    return np.asarray(correct / (correct + wrong.sum(axis=1) + SMALL), np.float64)


def truth_ratios(correct_loss: Floats, wrong_loss: Floats, *, aggregate: Aggregate) -> Floats:
    """Return wrong over right per question, (n,); for "prob_mean" right / (right + wrong).

    Both sides are exp(-mean loss), over the wrong answers (n, k) too.
    """
    right, wrong = (np.exp(-mean_over_answers(loss)) for loss in (correct_loss, wrong_loss))
    if aggregate == "prob_mean":
        return right / (right + wrong + SMALL)
    return wrong / (right + SMALL)


def aggregate_truth_ratios(ratios: Floats, *, aggregate: Aggregate) -> float:
    """Return the mean over questions of min(r, 1/r), of max(0, 1 - r), or of r itself ("prob_mean")."""
    if aggregate == "closer_to_1_better":
        ratios = np.minimum(ratios, 1 / (ratios + SMALL))
    elif aggregate == "true_better":
        ratios = np.maximum(0, 1 - ratios)
    return float(ratios.mean())


def forget_quality(ratios: Floats, retain_ratios: Floats) -> float:
    """Return the p-value of the two-sample Kolmogorov-Smirnov test of truth ratios (TOFU, section 2.2.2)."""
    from scipy.stats import ks_2samp  # noqa: PLC0415 - a second that an evaluation without a retain model need not pay

    return float(ks_2samp(ratios, retain_ratios).pvalue)


def exact_memorization(scores: TokenScores) -> Floats:
    """Return the share of tokens that are the most likely one, without the last; NaN where there is none."""
    return np.array([correct.mean() if len(correct) else np.nan for correct in scores.correct])


def extraction_strength(scores: TokenScores) -> Floats:
    """Return 1 - k/n, k the shortest part after which all tokens are the most likely ones.

    k is at most n - 1, so the value is never below 1/n; 0 where no token is left. The last token is left out.
    """
    return np.array([_extraction_strength(correct) for correct in scores.correct])


def model_utility(parts: list[float]) -> float:
    """Return the harmonic mean of the parts; one zero makes it 0."""
    values = np.array(parts)
    return 0.0 if (values == 0).any() else float(len(values) / (1 / values).sum())


def _extraction_strength(correct: np.ndarray) -> float:
    n = len(correct)
    if n == 0:
        return 0.0
    wrong = np.flatnonzero(~correct)
    k = min(int(wrong[-1]) + 1 if len(wrong) else 0, n - 1)
    return 1 - k / n
