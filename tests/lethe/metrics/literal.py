"""Metrics written as their sources describe or compute them, one model or example at a time; for comparison only."""

import numpy as np
from scipy.stats import entropy, ks_2samp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score, train_test_split

from lethe.metrics.core.arrays import Float64


def klom(unlearned: Float64, retrained: Float64) -> Float64:
    """Return the binned divergence of every example: numpy's digitize, scipy's entropy."""
    return np.array([_klom_of_example(unlearned[:, s], retrained[:, s]) for s in range(unlearned.shape[1])])


def _klom_of_example(unlearned: Float64, retrained: Float64) -> float:
    p, q = np.clip(retrained, -100.0, 100.0), np.clip(unlearned, -100.0, 100.0)
    edges = np.linspace(min(p.min(), q.min()), max(p.max(), q.max()), 21)
    p_share, q_share = (np.array([(np.digitize(x, edges) == i).sum() for i in range(1, 21)]) for x in (p, q))
    p_share, q_share = p_share / p_share.sum(), q_share / q_share.sum()
    return float(entropy(p_share, np.where(p_share > 0.0, np.maximum(q_share, 1e-5), q_share)))


def loss_attack(forget: Float64, test: Float64) -> Float64:
    """Return the mean held-out accuracy of every model: scikit-learn's regression, splits and cross-validation."""
    return np.array([_loss_attack_of_model(f, t) for f, t in zip(forget, test, strict=True)])


def _loss_attack_of_model(forget: Float64, test: Float64) -> float:
    size = min(forget.size, test.size)
    rng = np.random.default_rng(123)
    features = np.concatenate([rng.permutation(test)[:size], rng.permutation(forget)[:size]])[:, None]
    labels = np.repeat([0, 1], size)
    splits = StratifiedShuffleSplit(n_splits=10, test_size=0.1, random_state=123)
    return float(cross_val_score(LogisticRegression(), features, labels, cv=splits, scoring="accuracy").mean())


def softmax_attack(members: Float64, others: Float64) -> Float64:
    """Return the held-out accuracy of every model in percent: scikit-learn's regression on one split a model."""
    return np.array([_softmax_attack_of_model(i, a, b) for i, (a, b) in enumerate(zip(members, others, strict=True))])


def _softmax_attack_of_model(run: int, members: Float64, others: Float64) -> float:
    size = min(len(members), len(others))
    rng = np.random.default_rng(run)
    features = np.concatenate([rng.permutation(members)[:size], rng.permutation(others)[:size]])
    labels = np.repeat([1, 0], size)
    parts = train_test_split(features, labels, test_size=0.2, stratify=labels, random_state=run)
    attack = LogisticRegression(max_iter=1000).fit(parts[0], parts[2])
    return 100.0 * float(attack.score(parts[1], parts[3]))


def zrf(probabilities: Float64, untrained: Float64) -> Float64:
    """Return 1 - the mean base-2 Jensen-Shannon divergence of every model, whole arrays in numpy."""
    values = []
    for model in probabilities:
        divergences = [_jensen_shannon(model, network).mean() for network in untrained]
        values.append(1.0 - np.mean(divergences))
    return np.array(values)


def _jensen_shannon(p: Float64, q: Float64) -> Float64:
    m = (p + q) / 2.0
    return np.asarray((entropy(p, m, base=2, axis=1) + entropy(q, m, base=2, axis=1)) / 2.0)


def output_thresholds(unlearned: Float64, retrained: Float64) -> Float64:
    """Return the balanced accuracy of the best threshold of every example by scipy's two-sample test."""
    pairs = zip(unlearned.T, retrained.T, strict=True)
    return np.array([(1.0 + ks_2samp(u, r, method="asymp").statistic) / 2.0 for u, r in pairs])
