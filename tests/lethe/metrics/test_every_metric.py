"""What holds for every metric of the registry whose arrays the made-up models have.

Metrics of the same inputs share attacks: each test looks at its own metric of inputs that all tests of a kind share.
"""

import math
from functools import cache, lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.metrics import Inputs, MetricResult, Scope, evaluate, metrics
from lethe.metrics.core.metric_evaluation import MetricEvaluation, checked_parameters, compute
from lethe.metrics.core.registry import Feature
from tests.lethe.metrics import synthetic

SINGLE = [entry for entry in metrics().values() if entry.scope == Scope.SUBMISSION]
COMPUTABLE = [entry.id for entry in SINGLE if not synthetic.inputs().missing(entry)]
PER_MODEL = ("N", "k")


def draws_by_position(metric_id: str) -> bool:
    """Return whether positions are part of an attack's seed, so that their order matters."""
    features = [need.array for need in metrics()[metric_id].needs.values() if isinstance(need.array, Feature)]
    return any(feature.by_run for feature in features)


ORDERLESS = [metric_id for metric_id in COMPUTABLE if not draws_by_position(metric_id)]


@cache
def evaluated(metric_id: str, time: int = 1) -> MetricEvaluation:
    """Return a metric of the made-up models, computed once for each `time`."""
    return evaluate(made_up_inputs(time), [metric_id])[metric_id]


made_up_inputs = cache(lambda time: synthetic.inputs())


def result_of(inputs: Inputs, metric_id: str) -> MetricResult:
    entry = metrics()[metric_id]
    return compute(inputs, entry, checked_parameters(entry, {}))


def require_follows(changed: MetricResult, plain: MetricResult, *, by: str, order: tuple[int, ...]) -> None:
    """Require the same value, and the values of single runs or examples in their new order."""
    assert changed.value == pytest.approx(plain.value, rel=1e-12, abs=1e-12)
    single = getattr(plain, by)
    if single is not None and len(single) == len(order):
        np.testing.assert_allclose(getattr(changed, by), single[list(order)], rtol=1e-9, atol=1e-9)


@lru_cache(maxsize=8)
def inputs_with_runs_in(order: tuple[int, ...]) -> Inputs:
    return synthetic.inputs(**all_reordered(order))


@lru_cache(maxsize=8)
def inputs_with_examples_in(order: tuple[int, ...]) -> Inputs:
    return Inputs(**all_reordered(order), shared=reordered(synthetic.split_arrays(), order))


def all_reordered(order: tuple[int, ...]) -> dict[str, synthetic.Arrays]:
    return {name: reordered(arrays, order) for name, arrays in synthetic.sides().items()}


def reordered(arrays: synthetic.Arrays, order: tuple[int, ...]) -> synthetic.Arrays:
    """Return the arrays with every axis of the order's length put in this order."""
    changed = {}
    for name, values in arrays.items():
        changed[name] = values
        for axis in [axis for axis, length in enumerate(np.shape(values)) if length == len(order)]:
            changed[name] = np.take(changed[name], order, axis=axis)
    return changed


def other_orders(n: int) -> st.SearchStrategy[list[int]]:
    """Return every order but the one that is there, which made-up inputs begin with, and which shows nothing."""
    return st.permutations(range(n)).filter(lambda order: order != list(range(n)))


def test_metrics_of_images_are_all_computable():
    assert {"klom", "miau", "tow", "zrf", "mia_loss", "accuracy_gap", "relearn_time", "nomus"} <= set(COMPUTABLE)
    assert len(COMPUTABLE) >= 31


@pytest.mark.parametrize("metric_id", COMPUTABLE)
def test_metric_has_oracle_and_original_beside_it(metric_id):
    found = evaluated(metric_id)
    assert found.not_computed == ""
    assert found.reference_notes == ()
    for result in (found.result, found.oracle, found.original):
        assert result is not None
        assert isinstance(result.value, float)
        low, high = found.metric.bounds
        assert low - 1e-12 <= result.value <= high + 1e-12


@pytest.mark.parametrize("metric_id", COMPUTABLE)
def test_metric_is_the_same_twice(metric_id):
    first, second = (evaluated(metric_id, time).result for time in (1, 2))
    assert first is not None
    assert second is not None
    assert (first.value, first.interval) == (second.value, second.interval)


@settings(max_examples=2)
@given(order=other_orders(synthetic.N_MODELS))
@pytest.mark.parametrize("metric_id", ORDERLESS)
def test_metric_ignores_the_order_of_runs(metric_id, order):
    changed = result_of(inputs_with_runs_in(tuple(order)), metric_id)
    require_follows(changed, evaluated(metric_id).result, by="per_run", order=tuple(order))


@settings(max_examples=2)
@given(order=other_orders(synthetic.N_FORGET))
@pytest.mark.parametrize("metric_id", ORDERLESS)
def test_metric_ignores_the_order_of_examples(metric_id, order):
    changed = result_of(inputs_with_examples_in(tuple(order)), metric_id)
    require_follows(changed, evaluated(metric_id).result, by="per_example", order=tuple(order))


@cache
def retrained_twice() -> Inputs:
    return synthetic.inputs(unlearned=synthetic.sides()["retrained"])


@pytest.mark.parametrize(
    "metric_id",
    [
        metric_id
        for metric_id in COMPUTABLE
        if metrics()[metric_id].ideal is not None and metric_id != "epsilon_histogram"
    ],
)
def test_retrained_models_against_themselves_are_ideal(metric_id):
    assert result_of(retrained_twice(), metric_id).value == pytest.approx(metrics()[metric_id].ideal, abs=1e-12)


@pytest.mark.parametrize("metric_id", COMPUTABLE)
def test_nan_is_named_with_its_side(metric_id):
    broken = {name: with_nan(values) for name, values in synthetic.sides()["unlearned"].items()}
    found = evaluate(synthetic.inputs(unlearned=broken), [metric_id])[metric_id]
    assert found.result is None
    assert "unlearned" in found.not_computed
    assert "nan at" in found.not_computed


def with_nan(values: np.ndarray) -> np.ndarray:
    """Return a copy with one NaN, away from the first model and example."""
    changed = np.array(values, np.float64)
    changed[(1,) * changed.ndim] = math.nan
    return changed


@pytest.mark.parametrize("metric_id", [metric_id for metric_id in COMPUTABLE if metrics()[metric_id].paired])
def test_unequal_numbers_of_paired_models_are_refused(metric_id):
    fewer = synthetic.side_arrays(5, n_models=synthetic.N_MODELS - 1)
    found = evaluate(synthetic.inputs(unlearned=fewer), [metric_id])[metric_id]
    assert found.result is None
    assert "unequal numbers of models" in found.not_computed
