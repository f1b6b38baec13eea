"""Several submissions on one split: their metrics side by side, and the metrics that describe them together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from lethe.metrics.benchmark.rankings import paired_t_of_methods
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.metric_evaluation import MetricEvaluation, Request, checked_parameters, evaluate
from lethe.metrics.core.metric_text import FORMAT, JsonObject, evaluations_as_json, result_as_json
from lethe.metrics.core.registry import Metric, Parameters, Scope, metric
from lethe.metrics.core.result import MetricResult


@dataclass(frozen=True, eq=False)
class Comparison:
    """evaluations: by submission, then by metric. together: metrics of all submissions at once, by id.

    tests: paired t-tests of a metric between all submissions, by its id, where it is defined per run and every
    submission has it; rows and columns in the order of `evaluations`. not_computed: why an id is missing in
    `together`.
    """

    evaluations: Mapping[str, Mapping[str, MetricEvaluation]]
    together: Mapping[str, MetricResult]
    tests: Mapping[str, MetricResult]
    not_computed: Mapping[str, str]


def compare(submissions: Mapping[str, Inputs], metrics: Iterable[Request], *, seed: int = 0) -> Comparison:
    """Return the metrics of at least two submissions that share their retrained models.

    submissions: inputs by name. metrics: as for `evaluate`, and metrics that compare submissions.
    Raises InvalidMetricInput for fewer than two, or other retrained models; UnknownMetric for an unknown id.
    """
    require_one_split(submissions)
    requests = [request if isinstance(request, tuple) else (request, {}) for request in metrics]
    single = [request for request in requests if metric(request[0]).scope == Scope.SUBMISSION]
    evaluations = {name: evaluate(inputs, single, seed=seed) for name, inputs in submissions.items()}
    together: dict[str, MetricResult] = {}
    not_computed: dict[str, str] = {}
    for metric_id, given in requests:
        entry = metric(metric_id)
        if entry.scope == Scope.SUBMISSION or metric_id == "paired_t":
            continue
        try:
            together[metric_id] = _of_all(submissions, entry, checked_parameters(entry, given))
        except InvalidMetricInput as error:
            not_computed[metric_id] = str(error)
    return Comparison(evaluations, together, paired_tests(evaluations), not_computed)


def require_one_split(submissions: Mapping[str, Inputs]) -> None:
    """Raise InvalidMetricInput unless there are two submissions or more with the same retrained models."""
    if len(submissions) < 2:
        raise InvalidMetricInput(f"a comparison needs at least 2 submissions, not {len(submissions)}")
    names = list(submissions)
    for array in ("confidences", "test_accuracy"):
        known = [(name, submissions[name]) for name in names if submissions[name].has(Side.RETRAINED, array)]
        for name, inputs in known[1:]:
            if not np.array_equal(inputs.array(Side.RETRAINED, array), known[0][1].array(Side.RETRAINED, array)):
                raise InvalidMetricInput(f"{known[0][0]} and {name} have other retrained models: not the same split")
    require_one_size({name: inputs.n_models(Side.UNLEARNED) for name, inputs in submissions.items()})


def require_one_size(sizes: Mapping[str, int | None]) -> None:
    """Raise InvalidMetricInput, stating all, for submissions of different numbers of models N; None is not known."""
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(set(known.values())) > 1:
        stated = ", ".join(f"{name} has N = {size}" for name, size in known.items())
        raise InvalidMetricInput(
            f"scores depend on N, the number of models, and do not compare across it: {stated}; evaluate the first "
            f"{min(known.values())} models of each"
        )


def _of_all(submissions: Mapping[str, Inputs], entry: Metric, parameters: Parameters) -> MetricResult:
    if entry.scope == Scope.BENCHMARK:
        raise InvalidMetricInput(f"{entry.id} needs the cells of a benchmark, not submissions on one split")
    given = parameters.model_dump()
    first = next(iter(submissions.values()))
    arrays = {}
    for name, need in entry.needs.items():
        if need.side != Side.UNLEARNED:
            arrays[name] = first.value(need, given)
            continue
        rows = {submission: inputs.value(need, given) for submission, inputs in submissions.items()}
        if len({row.shape for row in rows.values()}) > 1:
            stated = ", ".join(f"{submission} has {row.shape}" for submission, row in rows.items())
            raise InvalidMetricInput(f"{entry.id}: unequal shapes: {stated}")
        arrays[name] = np.stack(list(rows.values()))
    return entry.function(**arrays, **given)


def paired_tests(evaluations: Mapping[str, Mapping[str, MetricEvaluation]]) -> dict[str, MetricResult]:
    """Return paired t-tests between all submissions of every metric with a value per run in all of them."""
    common = set.intersection(*(set(results) for results in evaluations.values()))
    tests = {}
    for metric_id in (metric_id for metric_id in next(iter(evaluations.values())) if metric_id in common):
        runs = [results[metric_id].result for results in evaluations.values()]
        rows = [run.per_run for run in runs if run is not None and run.per_run is not None]
        usable = len(rows) == len(runs) and len({row.size for row in rows}) == 1 and rows[0].size > 1
        if usable and np.isfinite(rows).all():
            tests[metric_id] = paired_t_of_methods(rows)
    return tests


def comparison_as_json(comparison: Comparison) -> JsonObject:
    """Return several submissions with what describes them together."""
    return {
        "format": FORMAT,
        "submissions": {
            name: evaluations_as_json(evaluations, examples=False)["metrics"]
            for name, evaluations in comparison.evaluations.items()
        },
        "together": {name: result_as_json(result, examples=True) for name, result in comparison.together.items()},
        "tests": {name: result_as_json(result, examples=True) for name, result in comparison.tests.items()},
        "not_computed": dict(comparison.not_computed),
    }
