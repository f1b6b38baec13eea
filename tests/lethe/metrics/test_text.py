"""Metrics of answers: formulas, the registered metrics, ROUGE."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.metrics import InvalidMetricInput, evaluate
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.registry import metric, metrics
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.answers import (
    answer_probabilities,
    closer_to_one,
    exact_memorization_shares,
    logit_scaled,
    option_probabilities,
    truth_ratios,
)
from lethe.metrics.text.mia_text import (
    compressed_sizes,
    min_k_plus_plus_scores,
    min_k_scores,
    zlib_scores,
)
from lethe.metrics.text.rouge import common_subsequence_length, rouge_l_recall, rouge_l_recalls, stem, words
from lethe.metrics.text.tofu import harmonic_mean, log10_p


def test_truth_ratio_of_improbable_answers_is_finite() -> None:
    right, wrong = np.array([2000.0, 2000.0]), np.array([[2001.0], [1000.0]])
    for mean in ("geometric", "arithmetic"):
        ratios = truth_ratios(right, wrong, mean=mean)
        assert ratios[0] == pytest.approx(math.exp(-1))
        assert np.isfinite(closer_to_one(ratios)).all()
    assert option_probabilities(right, wrong) == pytest.approx([1 / (1 + math.exp(-1)), 0.0], abs=1e-300)


def test_logit_scaled_is_the_logit_of_the_probability() -> None:
    loss = np.array([0.01, 1.0, 50.0])
    p = answer_probabilities(loss)
    assert logit_scaled(loss) == pytest.approx(np.log(p / (1 - p)))
    assert np.isfinite(logit_scaled(np.array([0.0, 5000.0]))).all()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *(
            (lambda bad=bad: answer_probabilities([1.0, bad]), r"`answer_loss` at \[1\] is .* must be finite")
            for bad in (math.inf, math.nan, -math.inf)
        ),
        (lambda: truth_ratios(np.ones(2), np.ones((3, 2))), r"shape \(3, 2\), right ones \(2,\)"),
        (lambda: answer_probabilities([]), "holds no example"),
        *((lambda parts=parts: harmonic_mean(parts), "harmonic mean") for parts in ([], [math.nan, 1.0], [-0.1, 1.0])),
        (lambda: exact_memorization_shares(np.ones((2, 3), bool), np.array([4, 1])), "answer 1 is empty"),
        (lambda: min_k_scores(np.zeros((2, 3)), np.array([4, 1])), "answer 1 is empty"),
        (lambda: exact_memorization_shares(np.ones((2, 3), bool), np.array([5, 4])), "do not fit"),
        (lambda: min_k_scores(np.zeros((1, 2)), np.array([3]), share=0), "share of tokens is 0"),
        (lambda: rouge_l_recalls(["a", " ?"], ["a", "b"]), "true answer 1 is empty"),
        (lambda: rouge_l_recalls(["a", "b"], ["a"]), "1 generated answers for 2 true"),
    ],
)
def test_what_has_no_value_is_refused(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidMetricInput, match=message):
        ask()


def test_min_k_plus_plus_standardises() -> None:
    log_p, mean, variance = np.array([[-5.0, -2.0]]), np.array([[-3.0, -2.0]]), np.array([[4.0, 0.0]])
    assert min_k_plus_plus_scores(log_p, mean, variance, np.array([3]), share=0.5).tolist() == [1.0]


def test_zlib_scores() -> None:
    sizes = compressed_sizes(["a" * 500, "ab"])
    assert sizes[0] < 30
    assert zlib_scores(np.array([2.0, 2.0]), np.array([4, 8])).tolist() == [0.5, 0.25]


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


@pytest.mark.parametrize(("metric_id", "ideal"), [("forget_quality", 0.0), ("privacy_leakage", 0.0)])
def test_metric_of_the_retrained_models_is_ideal(metric_id: str, ideal: float) -> None:
    assert computed(metric_id, side(1), side(1)).value == pytest.approx(ideal, abs=1e-7)
    assert metric(metric_id).ideal == ideal


def test_utility_without_pretraining_is_not_a_number() -> None:
    result = computed("model_utility", side(0, pretrained=False), side(1))
    assert np.isnan(result.value)
    assert result.notes == ("n/a without pretraining: real authors, world facts",)
    assert 0 < result.table["retain_utility"] < 1


def test_utility_of_an_ideal_model_is_one_and_a_zero_makes_it_zero() -> None:
    u = side(0)
    for name in SETS:
        u[f"{name}_answer_loss"][:] = u[f"{name}_paraphrased_loss"][:] = 0
        u[f"{name}_wrong_loss"][:] = 1000
        u[f"{name}_rouge_recall"][:] = 1
    assert computed("model_utility", u, side(1)).value == pytest.approx(1)
    assert harmonic_mean([0.0, 1.0]) == 0.0
    assert log10_p(0.0) == pytest.approx(-307.65, abs=0.01)


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


TEXTS = st.text(alphabet="abcdefgh 'eings.é-Y19", max_size=60)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("dies", "die"),
        ("agreed", "agre"),
        ("hopping", "hop"),
        ("falling", "fall"),
        ("filing", "file"),
        ("happy", "happi"),
        ("relational", "relat"),
        ("vietnamization", "vietnam"),
        ("electriciti", "electr"),
        ("adoption", "adopt"),
        ("controll", "control"),
        ("skies", "sky"),
        ("proceed", "proceed"),
        ("is", "is"),
    ],
)
def test_stem_of_known_words(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_words_are_lower_case_and_stemmed() -> None:
    assert words("The Writers' 2nd-best NOVELS: été") == ["the", "writer", "2nd", "best", "novel", "t"]


def test_rouge_of_nothing_is_zero() -> None:
    assert rouge_l_recall("a b", "") == rouge_l_recall("", "a b") == 0.0


@given(first=st.text("abc", max_size=12), second=st.text("abc", max_size=12))
def test_subsequence_equals_the_plain_table(first: str, second: str) -> None:
    table = np.zeros((len(first) + 1, len(second) + 1), int)
    for i, j in product(range(len(first)), range(len(second))):
        longer = max(table[i, j + 1], table[i + 1, j])
        table[i + 1, j + 1] = table[i, j] + 1 if first[i] == second[j] else longer
    assert common_subsequence_length(list(first), list(second)) == table[-1, -1]


@pytest.fixture(scope="module")
def scorer() -> Any:
    return pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeL"], use_stemmer=True)


@given(truth=TEXTS, generated=TEXTS)
def test_rouge_equals_rouge_score(scorer: Any, truth: str, generated: str) -> None:
    expected = scorer.score(truth, generated)
    assert rouge_l_recall(truth, generated) == expected["rougeL"].recall
