"""The likelihood-ratio attack of Carlini et al. and its variants, as scores of test models on examples.

The larger a score, the likelier the example was in the training set of the model. The published program negates this
sign twice; the values here are those that its ROC curve is made of.
"""

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
_TINY = 1e-30


def online_scores(scores: Float64, keep: Bool, targets: Float64, *, fixed_variance: bool = False) -> Float64:
    """Return the log likelihood ratio of member against non-member, shape (n_targets, n_examples).

    scores: shape (n_models, n_examples, n_views), the statistic of every shadow model. keep: shape (n_models,
    n_examples), whether the example was in the training set. targets: shape (n_targets, n_examples, n_views).
    fixed_variance: one standard deviation for all examples, that of the members, for both worlds. The published
    program does so too; the paper's text has one for each world.
    Source: Carlini et al. 2022 (arXiv:2112.03570), algorithm 1; tensorflow/privacy, mi_lira_2021, `generate_ours`.
    """
    members, others = _stacked(scores, keep), _stacked(scores, ~keep)
    spread_in = np.std(members) if fixed_variance else np.std(members, 1)
    spread_out = np.std(members) if fixed_variance else np.std(others, 1)
    log_in = np.asarray(norm.logpdf(targets, np.median(members, 1), spread_in + _TINY))
    log_out = np.asarray(norm.logpdf(targets, np.median(others, 1), spread_out + _TINY))
    return np.asarray((log_in - log_out).mean(axis=2), dtype=np.float64)


def offline_scores(scores: Float64, keep: Bool, targets: Float64, *, fixed_variance: bool = False) -> Float64:
    """Return minus the log likelihood of a non-member, shape (n_targets, n_examples); shapes as `online_scores`.

    Only shadow models without the example are used. Source: as above, `generate_ours_offline`. The paper's one-sided
    test is not what the program computes: a target far below the non-members scores as high as one far above.
    """
    others = _stacked(scores, ~keep)
    spread = np.std(others) if fixed_variance else np.std(others, 1)
    log_out = np.asarray(norm.logpdf(targets, np.median(others, 1), spread + _TINY))
    return np.asarray(-log_out.mean(axis=2), dtype=np.float64)


def threshold_scores(targets: Float64) -> Float64:
    """Return the mean statistic over views, shape (n_targets, n_examples): the attack without shadow models."""
    return np.asarray(targets.mean(axis=2), dtype=np.float64)


def _stacked(scores: Float64, chosen: Bool) -> Float64:
    """Return the scores of the chosen models by example, shape (n_examples, fewest chosen, n_views)."""
    fewest = int(chosen.sum(axis=0).min())
    first = np.argsort(~chosen, axis=0, kind="stable")[:fewest]
    return np.ascontiguousarray(np.take_along_axis(scores, first[:, :, None], axis=0).transpose(1, 0, 2))
