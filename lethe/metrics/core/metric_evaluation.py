"""Metrics of the unlearned models, each beside those of the oracle and the original model, with intervals over models.

The interval is the delete-half jackknife: every replicate leaves out a random half of the models and repeats none. The
spread of the replicates times sqrt((N - d) / d), with d of N left out, is the standard error (Shao and Wu 1989); the
interval is the value +- 1.96 standard errors, cut off at the metric's bounds.
"""

import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from lethe.metrics.core.array_catalogue import ARRAYS, Side
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.derived_arrays import DERIVED
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Feature, Metric, Need, Parameters, Resampling, Scope, metric
from lethe.metrics.core.result import MetricResult

MIN_MODELS = 4
NORMAL_QUANTILE_95 = 1.959963984540054
Interval = tuple[float, float]


def kept_models(n_models: int, *, n_resamples: int, seed: int, stream: int = 0) -> Iterator[Int64]:
    """Yield, per replicate, the sorted positions of the models that stay; n_models // 2 are left out.

    stream: sides that are not paired draw from streams of their own.
    """
    rng = np.random.default_rng([seed, n_models, stream])
    for _ in range(n_resamples):
        yield np.sort(rng.permutation(n_models)[n_models // 2 :])


def jackknife_interval(
    value: float, replicates: Float64, *, n_models: int, bounds: Interval = (-np.inf, np.inf)
) -> Interval | None:
    """Return the 95 % interval around the value; None if the value or more than half of the replicates is NaN."""
    known = replicates[np.isfinite(replicates)]
    if not np.isfinite(value) or known.size < 2 or known.size * 2 < replicates.size:
        return None
    left_out = n_models // 2
    reach = NORMAL_QUANTILE_95 * float(np.sqrt((n_models - left_out) / left_out)) * float(known.std(ddof=1))
    return max(bounds[0], value - reach), min(bounds[1], value + reach)


def interval_of_runs(
    value: float, per_run: Float64, *, n_resamples: int, seed: int, bounds: Interval
) -> Interval | None:
    """Return the interval of a mean over runs; None below 4 runs. NaN runs are left out, as in the mean."""
    known = per_run[~np.isnan(per_run)]
    if known.size < MIN_MODELS:
        return None
    kept = kept_models(known.size, n_resamples=n_resamples, seed=seed)
    replicates = np.array([known[rows].mean() for rows in kept])
    return jackknife_interval(value, replicates, n_models=known.size, bounds=bounds)


def interval_of_models(
    value: float,
    compute_metric: Callable[[tuple[Int64, ...]], float],
    *,
    sizes: tuple[int, ...],
    paired: bool,
    n_resamples: int,
    seed: int,
    bounds: Interval,
) -> Interval | None:
    """Return the interval of a metric that is computed again on half of the models of every side.

    compute_metric: from the positions kept, one array per side, to the metric. sizes: models on each side. paired: the
    same positions are kept on all sides, which must be of equal size.
    None if a side has fewer than 4 models.
    """
    if not sizes or min(sizes) < MIN_MODELS:
        return None
    draws = zip(
        *(
            kept_models(size, n_resamples=n_resamples, seed=seed, stream=0 if paired else side)
            for side, size in enumerate(sizes)
        ),
        strict=True,
    )
    replicates = np.array([compute_metric(kept) for kept in draws], np.float64)
    return jackknife_interval(value, replicates, n_models=min(sizes), bounds=bounds)


Array = npt.NDArray[Any]
Request = str | tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class MetricEvaluation:
    """One metric of one submission.

    result: of the unlearned models; None if it was not computed, and then not_computed says why.
    oracle, original: the same metric with the oracle or the original models in the place of the unlearned ones; None
    with a sentence in `reference_notes` where it cannot be had.
    """

    metric: Metric
    parameters: Parameters
    result: MetricResult | None
    oracle: MetricResult | None = None
    original: MetricResult | None = None
    not_computed: str = ""
    reference_notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.result is None:
            return f"MetricEvaluation({self.metric.id}: not computed: {self.not_computed})"
        shown = {self.metric.id: self.result, "oracle": self.oracle, "original": self.original}
        values = (f"{name}={one.value:.6g}" for name, one in shown.items() if one is not None)
        return f"MetricEvaluation({', '.join(values)})"


def evaluate(inputs: Inputs, metrics: Iterable[Request], *, seed: int = 0) -> dict[str, MetricEvaluation]:
    """Return every metric asked for, by id, in the order asked.

    metrics: ids, or pairs of an id and parameters that differ from the defaults. An id that is asked for several times
    with other parameters has them in its name, as in `klom:bins=10`. seed: of the intervals.
    What cannot be computed for lack or fault of arrays is in the result as a sentence; it stops no other metric.
    Raises UnknownMetric for an id that does not exist and InvalidMetricInput for wrong parameters.
    """
    requests = [request if isinstance(request, tuple) else (request, {}) for request in metrics]
    chosen = [(metric(metric_id), dict(given)) for metric_id, given in requests]
    pairs = [(entry, checked_parameters(entry, given)) for entry, given in chosen]
    return {
        name: evaluate_metric(inputs, entry, parameters, seed=seed)
        for name, (entry, parameters) in _named(pairs).items()
    }


def _named(pairs: list[tuple[Metric, Parameters]]) -> dict[str, tuple[Metric, Parameters]]:
    """Return metrics with their parameters, by id, or by id and parameters where an id has several."""
    found = {}
    for entry, parameters in pairs:
        several = any(other.id == entry.id and given != parameters for other, given in pairs)
        changed = parameters.model_dump(mode="json", exclude_defaults=True)
        settings = ",".join(f"{name}={_setting(value)}" for name, value in changed.items())
        found[f"{entry.id}:{settings}" if several and settings else entry.id] = (entry, parameters)
    return found


def _setting(value: Any) -> str:
    """Return a parameter's value as the command line takes it: a word, or else JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def checked_parameters(entry: Metric, given: Mapping[str, Any]) -> Parameters:
    """Return the metric's parameters; raises InvalidMetricInput naming the wrong one."""
    try:
        return entry.defaults.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        known = ", ".join(entry.defaults.model_fields) or "it has none"
        raise InvalidMetricInput(
            f"metric {entry.id}: parameter `{name}`: {first['msg']} (parameters: {known})"
        ) from error


def evaluate_metric(inputs: Inputs, entry: Metric, parameters: Parameters, *, seed: int = 0) -> MetricEvaluation:
    """Return one metric with its references."""
    if entry.scope != Scope.SUBMISSION:
        reason = f"{entry.id} compares several submissions or cells: use `lethe compare` or a benchmark"
        return MetricEvaluation(entry, parameters, None, not_computed=reason)
    try:
        result = compute(inputs, entry, parameters, seed=seed)
    except InvalidMetricInput as error:
        return MetricEvaluation(entry, parameters, None, not_computed=str(error))
    oracle, without_oracle = _reference(inputs, entry, parameters, Side.ORACLE, seed)
    original, without_original = _reference(inputs, entry, parameters, Side.ORIGINAL, seed)
    notes = (*without_oracle, *without_original)
    return MetricEvaluation(entry, parameters, result, oracle, original, reference_notes=notes)


def _reference(
    inputs: Inputs, entry: Metric, parameters: Parameters, side: Side, seed: int
) -> tuple[MetricResult | None, tuple[str, ...]]:
    try:
        return compute(inputs, entry, parameters, subject=side, seed=seed), ()
    except InvalidMetricInput as error:
        return None, (f"no value of the {side} models: {error}",)


def compute(
    inputs: Inputs, entry: Metric, parameters: Parameters, *, subject: Side = Side.UNLEARNED, seed: int = 0
) -> MetricResult:
    """Return a metric of the models of `subject`, with its interval.

    Raises MissingArray or InvalidMetricInput.
    """
    given = parameters.model_dump()
    needs = {
        name: replace(need, side=subject) if need.side == Side.UNLEARNED else need for name, need in entry.needs.items()
    }
    _require_models(entry, {need.side: inputs.n_paired(need.side) for need in needs.values()})
    arrays = {name: inputs.value(need, given) for name, need in needs.items()}
    accepted = inspect.signature(entry.function).parameters
    passed = {name: value for name, value in given.items() if name in accepted}
    result = _explained(entry.function(**arrays, **passed))
    interval = _interval(entry, result, needs=needs, arrays=arrays, passed=passed, seed=seed)
    return replace(result, interval=interval)


def _require_models(entry: Metric, sizes: Mapping[Side, int | None]) -> None:
    """Raise InvalidMetricInput for too few models of a side, or, where runs are paired, for unequal numbers."""
    known = {side: size for side, size in sizes.items() if size is not None}
    for side, size in known.items():
        if size < entry.fewest_models and side != Side.ORIGINAL:
            raise InvalidMetricInput(f"{entry.id} needs at least {entry.fewest_models} {side} models, not {size}")
    if entry.paired and not entry.unequal_too and len(set(known.values())) > 1:
        stated = ", ".join(f"{side} has {size}" for side, size in known.items())
        raise InvalidMetricInput(
            f"unequal numbers of models: {stated}; run i of one side belongs to model i of the other"
        )


def _explained(result: MetricResult) -> MetricResult:
    """Return the result with a note where its value is not a number that JSON can hold, and nothing says why."""
    if math.isfinite(result.value) or result.notes:
        return result
    what = "is not defined for these arrays" if math.isnan(result.value) else f"is {result.value}"
    return replace(result, notes=(f"the value {what}; JSON has null for it",))


def _interval(
    entry: Metric,
    result: MetricResult,
    *,
    needs: Mapping[str, Need],
    arrays: Mapping[str, Array],
    passed: Mapping[str, Any],
    seed: int,
) -> tuple[float, float] | None:
    if entry.resampling == Resampling.OWN:
        return result.interval
    settings: dict[str, Any] = {"n_resamples": entry.n_resamples, "seed": seed, "bounds": entry.bounds}
    if entry.resampling == Resampling.RUNS and result.per_run is not None:
        return interval_of_runs(result.value, result.per_run, **settings)
    if entry.resampling != Resampling.MODELS:
        return None
    # the subject and its references are drawn apart even if they are one side, as models of two sides are
    rows = {
        name: (entry.needs[name].side == Side.UNLEARNED)
        for name, need in needs.items()
        if arrays[name] is not None and _has_model_rows(need)  # one that is not needed may be None
    }
    groups = sorted(set(rows.values()), reverse=True)
    sizes = tuple(min(arrays[name].shape[0] for name in rows if rows[name] == group) for group in groups)

    def compute_metric(kept: tuple[Array, ...]) -> float:
        halves = dict(zip(groups, kept, strict=True))
        chosen = {name: array[halves[rows[name]]] if name in rows else array for name, array in arrays.items()}
        return entry.function(**chosen, **passed).value

    return interval_of_models(result.value, compute_metric, sizes=sizes, paired=entry.paired, **settings)


def _has_model_rows(need: Need) -> bool:
    if isinstance(need.array, Feature):
        return not need.array.against
    axes = (DERIVED.get(need.array) or ARRAYS[need.array]).axes
    return need.side != Side.SHARED and axes[:1] in (("N",), ("k",))
