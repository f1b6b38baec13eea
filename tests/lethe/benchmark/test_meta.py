"""The judgement of metrics, on made-up models and on a small split."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lethe.benchmark.meta_criteria import Criteria, as_json, judge, judged_metrics, relearning_and_quantisation
from lethe.benchmark.meta_models import KEPT, ModelSets, games, make_model_sets, variations
from lethe.cli.main import build_app
from lethe.metrics import InvalidMetricInput
from lethe.metrics.core.derived_arrays import log_margin
from lethe.reports.published_page import meta_figure, meta_table
from tests.lethe.conftest import competition

N, SIZES, CLASSES = 32, {"forget": 12, "retain": 20, "test": 20}, 3
NAMES = ("f", "joint_audit", "accuracy_gap", "retention", "zrf", "relative_test")


def labels() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {f"{name}_labels": rng.integers(0, CLASSES, size) for name, size in SIZES.items()}
    return found | {"random_forget_logits": rng.normal(size=(2, SIZES["forget"], CLASSES))}


def models(seed: int, *, known: float = 1.0) -> dict[str, np.ndarray]:
    """Return N models; `known` is how far the true class is above the others on the forget set."""
    rng, shared = np.random.default_rng(seed), labels()
    arrays: dict[str, np.ndarray] = {}
    for name, size in SIZES.items():
        outputs = rng.normal(size=(N, size, CLASSES))
        strength = known if name == "forget" else 2.0
        outputs[:, np.arange(size), shared[f"{name}_labels"]] += strength
        arrays[f"{name}_logits"] = outputs.astype(np.float32)
        arrays[f"{name}_accuracy"] = (outputs.argmax(axis=2) == shared[f"{name}_labels"]).mean(axis=1)
    arrays["confidences"] = log_margin(arrays["forget_logits"].astype(np.float64), shared["forget_labels"])
    return {name: arrays[name] for name in KEPT}


@pytest.fixture(scope="module")
def made() -> ModelSets:
    sets = {name: models(seed) for seed, name in enumerate(("retrained", "unknown", "fresh"), start=1)}
    sets |= {"known": models(4, known=8.0), "known_quantised": models(5, known=7.0), "unlearned": models(6, known=2.0)}
    sets |= {"unlearned_quantised": models(7, known=4.0), "unlearned_relearned": models(8, known=8.0)}
    sets["fresh_relearned"] = models(9, known=2.0)
    shared = labels()
    return ModelSets(sets, {"epochs-3": models(10, known=1.3)}, games(sets["known"], sets["retrained"], shared), shared)


@pytest.fixture(scope="module")
def judged(made: ModelSets) -> dict[str, Criteria]:
    return judge(made, entries=[entry for entry in judged_metrics() if entry.id in NAMES])


def test_metrics_are_judged_by_what_the_models_know(judged: dict[str, Criteria]) -> None:
    assert judged["accuracy_gap"].power == judged["joint_audit"].power == 1.0
    assert judged["accuracy_gap"].quantised == pytest.approx(1.0, abs=0.2)
    assert judged["retention"].power < 0.7, "it asks only retain data"
    assert np.mean([criteria.false_alarms for criteria in judged.values()]) < 0.35
    assert list(judged["f"].values_by_n) == ["4", "8", "16", "32"]
    assert abs(judged["joint_audit"].drift) > 0.5, "few models are told apart less well"
    assert abs(judged["f"].drift) < 0.1, "by crossfit attacks the scale is that of every N"
    assert judged["accuracy_gap"].games["noise"] < 0.2, "constant outputs fool an accuracy"
    assert judged["accuracy_gap"].game <= judged["accuracy_gap"].games["noise"]


def test_criteria_are_written_without_nan(judged: dict[str, Criteria]) -> None:
    broken = {name: Criteria(**(asdict(criteria) | {"drift": float("nan")})) for name, criteria in judged.items()}
    document = as_json(broken, {"n_models": N})
    assert json.loads(json.dumps(document, allow_nan=False))["metrics"]["f"]["drift"] is None
    table = meta_table(document)
    assert len(table.splitlines()) == 2 + len(NAMES)
    assert "–" in table
    assert meta_figure(document).axes


def test_games_change_what_is_put_out_and_nothing_else(made: ModelSets) -> None:
    known, retrained = made.sets["known"], made.sets["retrained"]
    assert set(made.games) == {"constant", "class never predicted", "temperature", "noise"}
    assert np.ptp(made.games["constant"]["confidences"]) == pytest.approx(0.0, abs=1e-6)
    commonest = np.bincount(made.shared["forget_labels"]).argmax()
    assert not (made.games["class never predicted"]["test_logits"].argmax(axis=2) == commonest).any()
    same = made.games["temperature"]["forget_logits"].argmax(axis=2) == known["forget_logits"].argmax(axis=2)
    assert same.all()
    means = [
        (1 / (1 + np.exp(-arrays["confidences"]))).mean() for arrays in (made.games["temperature"], retrained, known)
    ]
    assert means[0] == pytest.approx(means[1], abs=0.05)
    assert means[2] > means[1] + 0.2


def test_relearning_and_quantisation_by_hand() -> None:
    places = {"unlearned": 0.2, "unlearned_relearned": 0.8, "fresh": 0.0, "fresh_relearned": 0.3}
    assert relearning_and_quantisation(places | {"unlearned_quantised": 0.4}) == pytest.approx((0.5, 0.5))
    assert relearning_and_quantisation(places | {"unlearned_quantised": -0.1})[1] == 1.0
    still = places | {"unlearned_relearned": 0.2, "unlearned_quantised": float("nan")}
    assert np.isnan(relearning_and_quantisation(still)).all()


def test_number_of_models_is_a_multiple_of_eight(made: ModelSets) -> None:
    fewer = {name: {key: array[:20] for key, array in arrays.items()} for name, arrays in made.sets.items()}
    with pytest.raises(InvalidMetricInput, match="multiple of 8 models, 32 or more, not 20"):
        judge(ModelSets(fewer, {}, {}, made.shared), entries=[])


def test_variations_are_the_files_or_two_usual_ones() -> None:
    assert [each.label for each in variations(competition())] == ["epochs-3", "weight-decay-0.0005"]
    asked = competition(splits={"recipes": {"variations": [{"epochs": 2}]}}, report={"metrics": ["recipe_spread"]})
    assert [each.label for each in variations(asked)] == ["epochs-2"]


def test_every_metric_of_outputs_is_judged() -> None:
    known = {entry.id for entry in judged_metrics()}
    assert {"f", "score", "miau", "klom", "umia", "iam", "relative_test"} <= known
    assert not {"relearn_time", "targeted_error", "rte", "epsilon_histogram", "recipe_spread"} & known


def test_task_of_text_is_refused(tmp_path: Path) -> None:
    from tests.support.towns import towns_toml, write_towns  # noqa: PLC0415

    file = tmp_path / "towns.toml"
    file.write_text(towns_toml(write_towns(tmp_path / "towns")))
    found = CliRunner().invoke(build_app(), ["benchmark", "meta", str(file), "--out", str(tmp_path / "out")])
    assert found.exit_code != 0
    assert "tasks of images" in found.output + str(found.exception)


def test_sets_are_made_of_a_competition_file(tmp_path: Path) -> None:
    made = make_model_sets(competition(), tmp_path, n_models=4, method="msg")
    assert set(made.recipes) == {"epochs-3", "weight-decay-0.0005"}
    every = [*made.sets.values(), *made.recipes.values(), *made.games.values()]
    assert {tuple(sorted(arrays)) for arrays in every} == {tuple(sorted(KEPT))}
    assert all(len(arrays[name]) == 4 for arrays in every for name in KEPT)
    known, fresh = (made.sets[name]["forget_logits"].argmax(axis=2) for name in ("known", "fresh"))
    right = [(predicted == made.shared["forget_labels"]).mean() for predicted in (known, fresh)]
    assert right[0] > right[1]
    confidences = [made.sets[name]["confidences"] for name in ("retrained", "unknown", "fresh")]
    assert len({row.tobytes() for row in np.concatenate(confidences)}) == 12, "all of other seeds"
    assert not np.array_equal(made.sets["unlearned"]["confidences"], made.sets["unlearned_relearned"]["confidences"])
