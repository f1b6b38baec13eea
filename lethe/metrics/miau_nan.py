"""MIAU without the tasks on which original and retrained model do not differ."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lethe.metrics import miau as published
from lethe.metrics.gap_closure import ALPHA, EQUAL_WEIGHTS, checked_weights, gap_closure, unlearning_score
from lethe.metrics.result import MetricResult


def miau_nan(
    unlearned: npt.ArrayLike,
    retrained: npt.ArrayLike,
    original: npt.ArrayLike,
    *,
    alpha: float = ALPHA,
    weights: tuple[float, float, float] = EQUAL_WEIGHTS,
) -> MetricResult:
    """Return MIAU with the tasks where B = R left out of the run and the other weights scaled to sum 1.

    Arguments, unit and errors as for `miau`. A run without any usable task is NaN and left out of the mean.
    Source: a variant of the MIAU paper's equation 3.
    """
    m, r, b = published.checked_miau_inputs(unlearned, retrained, original)
    closure = gap_closure(m, r, b)
    used = np.where(b != r, checked_weights(weights), 0.0)
    total = used.sum(axis=1)
    scores = (unlearning_score(closure, alpha=alpha) * used).sum(axis=1)
    per_run = np.where(total > 0.0, scores / np.where(total > 0.0, total, 1.0), np.nan)
    table, notes = published.task_report(closure, b - r)
    lost = int(np.isnan(per_run).sum())
    if lost:
        notes = (*notes, f"{lost} of {len(m)} runs have no task with B other than R and are left out")
    value = float("nan") if lost == len(m) else float(np.nanmean(per_run))
    return MetricResult(value, per_run=per_run, table=table, notes=notes)


def miau_nan_of_tasks(
    *, alpha: float, weights: tuple[float, float, float], **accuracies: npt.ArrayLike
) -> MetricResult:
    """Return `miau_nan` of attack accuracies given one by one as `<side>_<task>`, shape (n_models,) each."""
    return miau_nan(*published.stacked_tasks(accuracies), alpha=alpha, weights=weights)


METRIC = replace(
    published.METRIC,
    id="miau_nan",
    title="MIAU without tasks that show nothing",
    function=miau_nan_of_tasks,
    formula="as miau, with tasks of B = R dropped from the run and the other weights scaled to sum 1",
)
