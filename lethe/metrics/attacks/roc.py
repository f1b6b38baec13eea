"""The ROC curve of an attack's scores and three numbers read from it.

Ties are one step of the curve, and points on a straight line are left out, as scikit-learn's `roc_curve` does, so that
the sums below have the same terms in the same order as those of the published programs.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidMetricInput

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RocCurve:
    """false_positive_rate, true_positive_rate: shape (n_points,), ascending, from (0, 0) to (1, 1)."""

    false_positive_rate: Float64
    true_positive_rate: Float64

    @property
    def area(self) -> float:
        """Return the area under the curve, in [0, 1]; 0.5 is chance."""
        return float(np.trapezoid(self.true_positive_rate, self.false_positive_rate))

    @property
    def accuracy(self) -> float:
        """Return the largest balanced accuracy over all thresholds, in [0.5, 1]."""
        return float(np.max(1 - (self.false_positive_rate + (1 - self.true_positive_rate)) / 2))

    def true_positive_rate_below(self, false_positive_rate: float) -> float:
        """Return the true positive rate at the last point whose false positive rate is below the given one (> 0)."""
        if not 0.0 < false_positive_rate <= 1.0:
            raise InvalidMetricInput(f"the false positive rate must be within (0, 1], not {false_positive_rate}")
        return float(self.true_positive_rate[np.flatnonzero(self.false_positive_rate < false_positive_rate)[-1]])


def roc_curve(scores: Float64, members: npt.NDArray[np.bool_]) -> RocCurve:
    """Return the curve of scores, the larger the likelier a member.

    scores: shape (n,), no NaN. members: shape (n,), bool, with both kinds. Raises InvalidMetricInput for one kind only.
    """
    if members.all() or not members.any():
        raise InvalidMetricInput("a ROC curve needs members and non-members; all scores are of one kind")
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    steps = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
    hits = np.cumsum(members[order], dtype=np.float64)[steps]
    alarms = 1.0 + steps - hits
    if hits.size > 2:
        corner = np.ones(hits.size, dtype=bool)
        corner[1:-1] = (np.diff(alarms, 2) != 0) | (np.diff(hits, 2) != 0)
        hits, alarms = hits[corner], alarms[corner]
    return RocCurve(np.append(0.0, alarms / alarms[-1]), np.append(0.0, hits / hits[-1]))
