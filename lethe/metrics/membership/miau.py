"""MIAU: how far three membership attacks moved from the original to the retrained accuracy, by outputs or saliency."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.attacks.membership_features import (
    FORGET_RETAIN_ATTACK,
    FORGET_RETAIN_SALIENCY,
    FORGET_TEST_ATTACK,
    FORGET_TEST_SALIENCY,
    TEST_RETAIN_ATTACK,
    TEST_RETAIN_SALIENCY,
    SaliencySplits,
    SoftmaxSplits,
)
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, real_array
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Feature, Metric, Need, Resampling, both_sides
from lethe.metrics.core.result import MetricResult
from lethe.metrics.membership.mia import MIA_FORGET_RETAIN

TASKS = ("forget_retain", "forget_test", "test_retain")
SIDES = (Side.UNLEARNED, Side.RETRAINED, Side.ORIGINAL)
ALPHA = 13.8
EQUAL_WEIGHTS = (1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0)


def gap_closure(unlearned: Float64, retrained: Float64, original: Float64) -> Float64:
    """Return f = (|B - R| - |M - R|) / |B - R|, and 0 where B equals R; shape as given.

    unlearned (M), retrained (R), original (B): accuracies of the same attack, run by run.
    Source: the MIAU paper, equation 1.
    """
    gap = np.abs(original - retrained)
    left = gap - np.abs(unlearned - retrained)
    return np.where(gap > 0.0, left / np.where(gap > 0.0, gap, 1.0), 0.0)


def unlearning_score(closure: npt.ArrayLike, *, alpha: float = ALPHA) -> Float64:
    """Return MUS = 100 / (1 + exp(-alpha (f - 1/2))), shape as given.

    Source: the MIAU paper, equation 2; alpha = 2 log 999 rounded down, appendix A.1.
    """
    with np.errstate(over="ignore"):
        return np.asarray(100.0 / (1.0 + np.exp(-alpha * (np.asarray(closure, np.float64) - 0.5))))


def checked_weights(weights: Sequence[float]) -> Float64:
    """Return the weights of the tasks, >= 0 and of sum 1; raises InvalidMetricInput otherwise."""
    array = real_array(weights, axes=("tasks",), name="weights")
    if array.size != len(TASKS) or (array < 0.0).any() or abs(array.sum() - 1.0) > 1e-9:
        raise InvalidMetricInput(
            f"weights must be {len(TASKS)} numbers of 0 or more whose sum is 1, not {list(map(float, array))}"
        )
    return array


RESOLVED = 2.0


class MiauParameters(SoftmaxSplits):
    """alpha: steepness. weights: of forget-retain, forget-test and test-retain, 0 or more and of sum 1."""

    alpha: float = Field(ALPHA, gt=0.0)
    weights: tuple[float, float, float] = EQUAL_WEIGHTS


def miau(
    unlearned: Float64,
    retrained: Float64,
    original: Float64,
    *,
    alpha: float = ALPHA,
    weights: tuple[float, float, float] = EQUAL_WEIGHTS,
) -> MetricResult:
    """Return the mean over runs of the weighted unlearning scores, 0 to 100; higher is better.

    unlearned, retrained, original: accuracies of the three attacks in percent, shape (n_models, 3), columns
    forget-retain, forget-test, test-retain; paired by run.
    table: per task the mean gap closure f and |B - R| / standard error. A task with B = R in a run scores f = 0.
    Raises InvalidMetricInput for weights that do not sum to 1.
    Source: the MIAU paper, equations 1 to 3.
    """
    m, r, b = unlearned, retrained, original
    closure = gap_closure(m, r, b)
    per_run = unlearning_score(closure, alpha=alpha) @ checked_weights(weights)
    table, notes = task_report(closure, b - r)
    equal = int((b == r).any(axis=1).sum())
    if equal:
        notes = (*notes, f"in {equal} of {len(m)} runs a task has B = R and counts as f = 0; see miau_nan")
    return MetricResult(float(per_run.mean()), per_run=per_run, table=table, notes=notes)


def task_report(closure: Float64, gap: Float64) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return per task the mean f and how many standard errors the gap B - R is from 0, with a note where below 2."""
    table: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    for task, f, difference in zip(TASKS, closure.T, gap.T, strict=True):
        table[f"f_{task}"] = float(f.mean())
        if difference.size < 2:
            continue
        error = float(difference.std(ddof=1)) / np.sqrt(difference.size)
        resolution = abs(float(difference.mean())) / error if error > 0.0 else float("inf")
        table[f"gap_over_error_{task}"] = float(resolution)
        if not resolution >= RESOLVED:
            notes = (*notes, f"{task} is not resolved: |B - R| is {resolution:.1f} standard errors")
    return table, notes


def miau_of_tasks(*, alpha: float, weights: tuple[float, float, float], **accuracies: npt.ArrayLike) -> MetricResult:
    """Return `miau` of attack accuracies given one by one as `<side>_<task>`, shape (n_models,) each."""
    return miau(*stacked_tasks(accuracies), alpha=alpha, weights=weights)


def stacked_tasks(accuracies: dict[str, npt.ArrayLike]) -> tuple[Float64, Float64, Float64]:
    """Return the columns of the three tasks side by side, for unlearned, retrained and original models."""
    m, r, b = (np.column_stack([accuracies[f"{side}_{task}"] for task in TASKS]) for side in SIDES)
    return m, r, b


def _needs(*attacks: Feature) -> dict[str, Need]:
    return {f"{side}_{task}": Need(attack, side) for side in SIDES for task, attack in zip(TASKS, attacks, strict=True)}


MIAU = Metric(
    id="miau",
    title="MIAU",
    function=miau_of_tasks,
    needs=_needs(FORGET_RETAIN_ATTACK, FORGET_TEST_ATTACK, TEST_RETAIN_ATTACK),
    unit="0 to 100",
    direction=Direction.HIGHER,
    defaults=MiauParameters,
    paired=True,
    bounds=(0.0, 100.0),
    resampling=Resampling.RUNS,
    source="the MIAU paper, equations 1 to 3",
    formula=(
        "f = ( |B - R| - |M - R| ) / |B - R| per task and run, 0 if B = R; MUS = 100 / ( 1 + exp( -13.8 (f - 1/2) ) ); "
        "MIAU = mean of MUS over the three tasks, then over runs"
    ),
    paper_and_code=(
        "No code is public. A task with B = R gives even exact retraining 0.1 of 100; miau_nan drops it. MIAU 40 does "
        "not mean that 40 % of the gap is closed (f = 0.47 does); f is in the table. The paper scores the retrained "
        "models against themselves, 99.9 by construction; a second exact retraining scores far less: see the oracle. "
        "Overshooting and undershooting score alike."
    ),
)


def miau_nan(
    unlearned: Float64,
    retrained: Float64,
    original: Float64,
    *,
    alpha: float = ALPHA,
    weights: tuple[float, float, float] = EQUAL_WEIGHTS,
) -> MetricResult:
    """Return MIAU with the tasks where B = R left out of the run and the other weights scaled to sum 1.

    Arguments, unit and errors as for `miau`. A run without any usable task is NaN and left out of the mean.
    Source: a variant of the MIAU paper's equation 3.
    """
    m, r, b = unlearned, retrained, original
    closure = gap_closure(m, r, b)
    used = np.where(b != r, checked_weights(weights), 0.0)
    total = used.sum(axis=1)
    scores = (unlearning_score(closure, alpha=alpha) * used).sum(axis=1)
    per_run = np.where(total > 0.0, scores / np.where(total > 0.0, total, 1.0), np.nan)
    table, notes = task_report(closure, b - r)
    lost = int(np.isnan(per_run).sum())
    if lost:
        notes = (*notes, f"{lost} of {len(m)} runs have no task with B other than R and are left out")
    value = float("nan") if lost == len(m) else float(np.nanmean(per_run))
    return MetricResult(value, per_run=per_run, table=table, notes=notes)


def miau_nan_of_tasks(
    *, alpha: float, weights: tuple[float, float, float], **accuracies: npt.ArrayLike
) -> MetricResult:
    """Return `miau_nan` of attack accuracies given one by one as `<side>_<task>`, shape (n_models,) each."""
    return miau_nan(*stacked_tasks(accuracies), alpha=alpha, weights=weights)


MIAU_NAN = replace(
    MIAU,
    id="miau_nan",
    title="MIAU without tasks that show nothing",
    function=miau_nan_of_tasks,
    formula="as miau, with tasks of B = R dropped from the run and the other weights scaled to sum 1",
)


SOURCE = "the MIAU paper, section 5 and table 26; Huang et al. 2024 (2407.17663)"
NOT_STATED = (
    "No code is public, and the paper names XGBoost 3.0 without settings: here scikit-learn's boosting on histograms "
    "with XGBoost's defaults, at least 4 examples in a leaf. Maps are absolute gradients of the predicted class's "
    "output by the input, as in the program of Huang et al., which the paper follows. "
)
DRAWS = (
    "One split per run, seeded by the run, the same for the unlearned, retrained and original model of the run. The "
    "order of the examples is part of the seed."
)


class SaliencyMiauParameters(SaliencySplits, MiauParameters):
    """The settings of the attack and those of MIAU."""


def _attack(name: str, sets: str, feature: Feature) -> Metric:
    return replace(
        MIA_FORGET_RETAIN,
        id=f"mia_saliency_{name}",
        title=f"Saliency attack, {sets}",
        needs=both_sides(feature, retrained_optional=True),
        defaults=SaliencySplits,
        source=SOURCE,
        formula=(
            "mean over runs of 100 x the held-out accuracy of gradient boosting on | d z_argmax / d x |, sets cut to "
            "equal size, 80 % for training"
        ),
        paper_and_code=NOT_STATED + DRAWS,
    )


MIA_SALIENCY_FORGET_RETAIN = _attack("forget_retain", "forget against retain", FORGET_RETAIN_SALIENCY)
MIA_SALIENCY_FORGET_TEST = _attack("forget_test", "forget against test", FORGET_TEST_SALIENCY)
MIA_SALIENCY_TEST_RETAIN = _attack("test_retain", "test against retain", TEST_RETAIN_SALIENCY)

MIAU_SALIENCY = replace(
    MIAU,
    id="miau_saliency",
    title="MIAU of saliency attacks",
    needs=_needs(FORGET_RETAIN_SALIENCY, FORGET_TEST_SALIENCY, TEST_RETAIN_SALIENCY),
    defaults=SaliencyMiauParameters,
    source=f"{SOURCE}; equations 1 to 3",
    paper_and_code=NOT_STATED + MIAU.paper_and_code.removeprefix("No code is public. "),
)
