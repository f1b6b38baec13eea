"""The mean over models of a number that was computed for every model, beside that of the retrained models."""

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.result import MetricResult

WITHOUT_RETRAINED = "no retrained models are given, whose value is the aim: this value alone does not say what is good"


def mean_of_runs(unlearned: Float64, retrained: Float64 | None = None) -> MetricResult:
    """Return the mean of the unlearned models' numbers; the retrained models' mean is in the table if they are given.

    unlearned, retrained: shape (n_models,) each; the numbers of models may differ.
    """
    if retrained is None:
        return MetricResult(float(unlearned.mean()), per_run=unlearned, notes=(WITHOUT_RETRAINED,))
    return MetricResult(float(unlearned.mean()), per_run=unlearned, table={"retrained": float(retrained.mean())})


def gap_of_runs(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return |mean of the unlearned models' numbers - mean of the retrained models'|; 0 is ideal.

    unlearned, retrained: shape (n_models,) each; the numbers of models may differ. table: the signed difference; above
    0 the forget set is still known better than after retraining.
    """
    table = {"unlearned": float(unlearned.mean()), "retrained": float(retrained.mean())}
    difference = table["unlearned"] - table["retrained"]
    return MetricResult(abs(difference), table={"difference": difference, **table})
