"""The registered metrics of answers on arrays of several runs."""

import numpy as np
import pytest

from lethe.metrics import evaluate
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.registry import metric, metrics
from lethe.metrics.core.result import MetricResult

N, S, L, W = 3, 12, 7, 4
SETS = {"forget": S, "retain": 9, "real_authors": 6, "world_facts": 5}


def side(seed: int, *, pretrained: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for name, full in SETS.items():
        n = full if pretrained or name in ("forget", "retain") else 0
        arrays[f"{name}_answer_loss"] = rng.gamma(2, 0.5, (N, n))
        arrays[f"{name}_paraphrased_loss"] = rng.gamma(2, 0.5, (N, n))
        arrays[f"{name}_wrong_loss"] = rng.gamma(4, 0.5, (N, n, W))
        arrays[f"{name}_rouge_recall"] = rng.uniform(0, 1, (N, n))
    for name in ("forget", "holdout"):
        arrays[f"{name}_token_log_probability"] = -rng.gamma(2, 0.5, (N, S, L))
        arrays[f"{name}_token_mean"] = -rng.gamma(3, 0.5, (N, S, L))
        arrays[f"{name}_token_variance"] = rng.gamma(3, 0.5, (N, S, L))
        arrays[f"{name}_token_correct"] = rng.uniform(size=(N, S, L)) < 0.5
    arrays["holdout_answer_loss"] = rng.gamma(2, 0.5, (N, S))
    return arrays


def shared() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    arrays = {}
    for name in ("forget", "holdout"):
        arrays[f"{name}_answer_tokens"] = rng.integers(3, L + 2, S)
        arrays[f"{name}_compressed_bytes"] = rng.integers(20, 60, S)
    return arrays


TEXT_METRICS = [one.id for one in metrics().values() if one.function.__module__.startswith("lethe.metrics.text")]


def computed(metric_id: str, unlearned: dict[str, np.ndarray], retrained: dict[str, np.ndarray]) -> MetricResult:
    one = metric(metric_id)
    inputs = Inputs(unlearned, retrained, shared=shared())
    return one.function(**{name: inputs.value(need, {}) for name, need in one.needs.items()})


def test_all_text_metrics_are_registered() -> None:
    assert len(TEXT_METRICS) == 14
    assert {"model_utility", "forget_quality", "privacy_leakage", "mia_text_min_k_plus_plus"} <= set(TEXT_METRICS)


@pytest.mark.parametrize("metric_id", TEXT_METRICS)
def test_metric_is_unchanged_by_the_order_of_runs(metric_id: str) -> None:
    u, r = side(0), side(1)
    backwards = [{name: array[::-1] for name, array in arrays.items()} for arrays in (u, r)]
    value = computed(metric_id, u, r).value
    assert np.isfinite(value)
    assert computed(metric_id, *backwards).value == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("metric_id", TEXT_METRICS)
def test_metric_is_the_mean_of_its_runs(metric_id: str) -> None:
    u, r = side(0), side(1)
    per_run = [
        computed(metric_id, *({name: a[i : i + 1] for name, a in arrays.items()} for arrays in (u, r))).value
        for i in range(N)
    ]
    whole = computed(metric_id, u, r)
    assert whole.value == pytest.approx(np.mean(per_run), abs=1e-12)
    assert whole.per_run == pytest.approx(np.array(per_run), abs=1e-12)


def test_forget_quality_tells_the_p_of_the_mean_logarithm_and_of_the_middle_pair() -> None:
    result = computed("forget_quality", side(0), side(1))
    assert result.table["p"] == pytest.approx(10**result.value)
    assert result.table["median_p"] == pytest.approx(np.median([10**value for value in result.per_run]))
    assert result.table["median_p"] != pytest.approx(result.table["p"])


@pytest.mark.parametrize(("metric_id", "ideal"), [("forget_quality", 0.0), ("privacy_leakage", 0.0)])
def test_metric_of_the_retrained_models_is_ideal(metric_id: str, ideal: float) -> None:
    assert computed(metric_id, side(1), side(1)).value == pytest.approx(ideal, abs=1e-7)
    assert metric(metric_id).ideal == ideal


def test_utility_without_pretraining_is_not_a_number() -> None:
    result = computed("model_utility", side(0, pretrained=False), side(1))
    assert np.isnan(result.value)
    assert result.notes == ("n/a without pretraining: real authors, world facts",)
    assert 0 < result.table["retain_utility"] < 1


def test_utility_of_an_ideal_model_is_one() -> None:
    u = side(0)
    for name in SETS:
        u[f"{name}_answer_loss"][:] = u[f"{name}_paraphrased_loss"][:] = 0
        u[f"{name}_wrong_loss"][:] = 1000
        u[f"{name}_rouge_recall"][:] = 1
    assert computed("model_utility", u, side(1)).value == pytest.approx(1)


@pytest.mark.parametrize("pretrained", [True, False])
def test_every_metric_has_its_references_beside_it(*, pretrained: bool) -> None:
    u, r, oracle = (side(seed, pretrained=pretrained) for seed in range(3))
    original = {name: array[:1] for name, array in side(3, pretrained=pretrained).items()}
    found = evaluate(Inputs(u, r, oracle, original, shared=shared()), TEXT_METRICS)
    for metric_id in TEXT_METRICS:
        one = found[metric_id]
        assert one.not_computed == "", metric_id
        values = [result.value for result in (one.result, one.oracle, one.original) if result is not None]
        assert len(values) == 3, metric_id
        assert np.isfinite(values).all() == (pretrained or metric_id != "model_utility"), metric_id
