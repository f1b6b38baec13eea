"""A membership attack that learns from retain and test examples and is asked about the forget set."""

from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Parameters


class ShadowParameters(Parameters):
    """n_models: the first ones, which are attacked (a fit takes about a second). shadow_rows: used of both sets."""

    n_models: int = Field(8, ge=1)
    shadow_rows: int = Field(5000, ge=2)
    seed: int = Field(0, ge=0)


def svc_member_share(members: npt.NDArray[Any], others: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """Return the share of targets that a support vector classifier calls members, in [0, 1].

    members, others, targets: features, shape (n,) or (n, n_features), at least one row each.
    Source: Golatkar et al. 2020 (arXiv:2003.02960): C = 3, radial kernel, gamma = 1 / n_features.
    """
    from sklearn.svm import SVC  # noqa: PLC0415  slow to import; this attack alone needs it

    return _share(SVC(C=3, gamma="auto", kernel="rbf"), members, others, targets)


def logistic_member_share(members: npt.NDArray[Any], others: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """Return the same share by logistic regression with balanced class weights.

    Source: Foster et al. 2024 (arXiv:2308.07707), program, metrics.py.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  slow to import; this attack alone needs it

    return _share(LogisticRegression(class_weight="balanced"), members, others, targets)


def _share(classifier: Any, members: npt.NDArray[Any], others: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    rows = np.concatenate((_columns(members), _columns(others)))
    classifier.fit(rows, np.repeat([1.0, 0.0], [len(members), len(others)]))
    return float(classifier.predict(_columns(targets)).mean())


def _columns(features: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    # the published programs have their features in float32; so an example falls on the same side of the boundary
    return np.asarray(features, np.float32).reshape(len(features), -1)


def shadow_part(features: Float64, n_rows: int, *, seed: int) -> Float64:
    """Return at most n_rows rows, drawn at random from the rows in ascending order; so their order does not matter."""
    rows = features.reshape(len(features), -1)
    ordered = rows[np.lexsort(rows.T[::-1])]
    chosen = np.random.default_rng(seed).permutation(len(ordered))[:n_rows]
    return np.asarray(ordered[np.sort(chosen)])
