"""The mean over models of a number that was computed for every model, beside that of the retrained models."""

from collections.abc import Callable

import numpy.typing as npt

from lethe.metrics.core.arrays import shares
from lethe.metrics.core.result import MetricResult

WITHOUT_RETRAINED = "no retrained models are given, whose value is the aim: this value alone does not say what is good"


def mean_share(unlearned: npt.ArrayLike, retrained: npt.ArrayLike | None, *, name: str) -> MetricResult:
    """Return the mean of the unlearned models' numbers; the retrained models' mean is in the table if they are given.

    unlearned, retrained: shape (n_models,) each, in [0, 1]; the numbers of models may differ.
    Raises InvalidMetricInput for values outside [0, 1].
    """
    u = shares(unlearned, axes=("models",), name=name, side="unlearned")
    if retrained is None:
        return MetricResult(float(u.mean()), per_run=u, notes=(WITHOUT_RETRAINED,))
    r = shares(retrained, axes=("models",), name=name, side="retrained")
    return MetricResult(float(u.mean()), per_run=u, table={"retrained": float(r.mean())})


def mean_of(name: str) -> Callable[..., MetricResult]:
    """Return the function of a metric that is `mean_share` of one number per model. name: of the numbers."""

    def mean(unlearned: npt.ArrayLike, retrained: npt.ArrayLike | None = None) -> MetricResult:
        """Return the mean over unlearned models, beside the retrained models', which is the aim; see `mean_share`."""
        return mean_share(unlearned, retrained, name=name)

    return mean
