"""Where unlearned runs lie on the way from the original to the retrained models."""

from dataclasses import replace

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Bool, Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult


def relative_position(unlearned: Float64, retrained: Float64, original: Float64) -> MetricResult:
    """Return the mean position of the unlearned runs: 0 at the original model, 1 at the mean retrained model.

    unlearned, retrained, original: confidences, shape (n_models, n_examples). Run n starts from original n; where all
    originals are one model, or their number is another, from their mean. per_run: the position of every run, which may
    be below 0 or above 1. Examples are scaled by the standard deviation of the retrained models; those that all
    retrained models agree on are left out and counted in a note.
    NaN where the original lies at the mean retrained model, or no example is left.
    Raises InvalidMetricInput for one retrained model.
    """
    scaled = _scaled(unlearned, retrained, original)
    way = scaled.aim - scaled.start
    length = (way**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        position = np.where(length > 0.0, ((scaled.runs - scaled.start) * way).sum(axis=1) / length, np.nan)
    return MetricResult(_mean(position), per_run=position, notes=scaled.notes)


def nearer_to_retrained(unlearned: Float64, retrained: Float64, original: Float64) -> MetricResult:
    """Return the share of unlearned runs nearer to the mean retrained model than to their original, in [0, 1].

    Arguments, scale and errors as for `relative_position`. per_run: 1 or 0; a tie is not nearer.
    """
    scaled = _scaled(unlearned, retrained, original)
    if not scaled.runs.shape[1]:
        return MetricResult(float("nan"), notes=scaled.notes)
    to_aim = ((scaled.runs - scaled.aim) ** 2).sum(axis=1)
    to_start = ((scaled.runs - scaled.start) ** 2).sum(axis=1)
    nearer = (to_aim < to_start).astype(np.float64)
    return MetricResult(float(nearer.mean()), per_run=nearer, notes=scaled.notes)


class _Scaled:
    """Runs, the mean retrained model and every run's original, in standard deviations of the retrained models."""

    def __init__(self, runs: Float64, aim: Float64, start: Float64, deviation: Float64) -> None:
        varied: Bool = deviation > 0.0
        scale = deviation[varied]
        self.runs, self.aim, self.start = (part[..., varied] / scale for part in (runs, aim, start))
        n_left_out = int((~varied).sum())
        of_all = f"{n_left_out} of {varied.size} examples are left out: all retrained models have the same confidence"
        self.notes = (of_all,) if n_left_out else ()


def _scaled(unlearned: Float64, retrained: Float64, original: Float64) -> _Scaled:
    u, r, o = unlearned, retrained, original
    if len(r) < 2:
        raise InvalidMetricInput("the scale needs at least 2 retrained models, not 1", side=Side.RETRAINED)
    start = o if len(o) == len(u) else np.broadcast_to(o.mean(axis=0), u.shape)
    spread = np.where(np.ptp(r, axis=0) > 0.0, r.std(axis=0), 0.0)  # rounding leaves constants a deviation
    return _Scaled(u, r.mean(axis=0), start, spread)


def _mean(values: Float64) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


METRIC = Metric(
    id="relative_position",
    title="Position between original and retrained",
    function=relative_position,
    needs={
        "unlearned": Need("forget_margins"),
        "retrained": Need("forget_margins", Side.RETRAINED),
        "original": Need("forget_margins", Side.ORIGINAL),
    },
    unit="0 at the original, 1 at the mean retrained model",
    direction=Direction.TOWARDS_RETRAINED,
    resampling=Resampling.RUNS,
    source="defined by Lethe; the question is that of Ribero, Schrab and Gretton 2026 (2601.19755)",
    formula="mean_n <(u_n - o_n) / sd, (mean r - o_n) / sd> / |(mean r - o_n) / sd|^2, sd over retrained models",
)

NEARER = replace(
    METRIC,
    id="nearer_to_retrained",
    title="Runs nearer to retrained than to original",
    function=nearer_to_retrained,
    unit="share of runs",
    direction=Direction.HIGHER,
    bounds=(0.0, 1.0),
    formula="mean_n [ |(u_n - mean r) / sd| < |(u_n - o_n) / sd| ], sd over retrained models",
)
