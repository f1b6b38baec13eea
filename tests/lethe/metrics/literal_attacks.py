"""The attacks as their authors' programs formulate them: one model, example and value after another.

What tests compare with; written for likeness, not for use.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import auc, roc_curve
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.neighbors import KernelDensity

Array = npt.NDArray[Any]


def umia_scores(first: Array, second: Array, *, n_splits: int = 10) -> Array:
    """Return the accuracies of scikit-learn's logistic regression on its stratified shuffle splits."""
    values = np.concatenate((first, second)).reshape(-1, 1)
    labels = np.concatenate((np.zeros(len(first), dtype=int), np.ones(len(second), dtype=int)))
    splits = StratifiedShuffleSplit(n_splits=n_splits, random_state=123)
    return np.asarray(cross_val_score(LogisticRegression(), values, labels, cv=splits, scoring="accuracy"))


def threshold_accuracy(values: Sequence[Array], labels: Sequence[Array], n_classes: int) -> float:
    """Return the accuracy of one threshold per class; shadow members and others, then target members and others."""
    member_hits, other_rejections = 0, 0
    for label in range(n_classes):
        a, b, c, d = (v[y == label] for v, y in zip(values, labels, strict=True))
        if len(a) + len(b) == 0:
            continue
        threshold, best = 0.0, 0.0
        for value in np.concatenate((a, b)):
            if len(a) == 0 or len(b) == 0:
                break
            accuracy = 0.5 * (np.sum(a >= value) / len(a) + np.sum(b < value) / len(b))
            if accuracy > best:
                threshold, best = value, accuracy
        member_hits += int(np.sum(c >= threshold))
        other_rejections += int(np.sum(d < threshold))
    return 0.5 * (member_hits / len(values[2]) + other_rejections / len(values[3]))


def ulira_ratios(unlearned: Array, retrained: Array, example: int, *, density: str = "normal") -> tuple[Array, Array]:
    """Return the log ratios of one example's values, each under densities fitted to the other pairs of models."""
    n_models = len(unlearned)
    ratios = np.empty((2, n_models))
    for i in range(n_models):
        others = [j for j in range(n_models) if j != i]
        u, r = unlearned[others, example], retrained[others, example]
        for side, x in enumerate((unlearned[i, example], retrained[i, example])):
            if density == "kde":
                ratios[side, i] = _kernel_log_density(x, u) - _kernel_log_density(x, r)
            else:
                ratios[side, i] = norm.logpdf(x, u.mean(), u.std() + 1e-30) - norm.logpdf(x, r.mean(), r.std() + 1e-30)
    return ratios[0], ratios[1]


def _kernel_log_density(x: float, sample: Array) -> float:
    return float(KernelDensity(kernel="gaussian").fit(sample.reshape(-1, 1)).score_samples(np.array([[x]]))[0])


def correctness_memberships(correct: Array, state: Array) -> list[list[float]]:
    """Return, by example, the published membership probability of every forgotten model."""
    rows = []
    for outcomes, kinds in zip(correct, state, strict=True):
        forgotten, never = list(outcomes[kinds == 1]), list(outcomes[kinds == 2])
        means = np.mean(forgotten), np.mean(never)
        deviations = np.std(forgotten), np.std(never)
        row = []
        for z in forgotten:
            inside = norm.pdf(z, means[0], deviations[0])
            row.append(inside / (inside + norm.pdf(z, means[1], deviations[1])))
        rows.append(row)
    return rows


def lira_online(scores: Array, keep: Array, targets: Array, answers: Array) -> tuple[float, float]:
    """Return area and best accuracy of the online attack, example by example."""
    predictions = np.empty(targets.shape[:2])
    for j in range(scores.shape[1]):
        inside, outside = scores[keep[:, j], j], scores[~keep[:, j], j]
        log_in = norm.logpdf(targets[:, j], np.median(inside, 0), np.std(inside, 0) + 1e-30)
        log_out = norm.logpdf(targets[:, j], np.median(outside, 0), np.std(outside, 0) + 1e-30)
        predictions[:, j] = (log_in - log_out).mean(axis=1)
    false_rate, true_rate, _ = roc_curve(answers.ravel(), predictions.ravel())
    return float(auc(false_rate, true_rate)), float(np.max(1 - (false_rate + (1 - true_rate)) / 2))
