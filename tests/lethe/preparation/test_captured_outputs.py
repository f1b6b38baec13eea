"""Splits whose competition asks for metrics: what is stored, and that nothing else changes."""

from pathlib import Path

import numpy as np
import pytest

from lethe.competition.report_section import lacking_for_metric
from lethe.data.errors import InvalidSplit
from lethe.data.files import read_tensors
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import (
    ORIGINAL_OUTPUTS,
    OUTPUT_PATHS,
    RANDOM_OUTPUTS,
    read_outputs,
    read_probed_references,
    read_stored_outputs,
)
from lethe.evaluation.split_inputs import split_inputs
from lethe.metrics import Scope, evaluate, metrics
from lethe.metrics.core.array_catalogue import ARRAYS
from lethe.preparation.prepare import prepare_split
from lethe.preparation.public_sample import sample_parts
from tests.lethe.conftest import MakeCompetition, competition

METRICS = ["accuracy_gap", "targeted_error"]


def test_captured_arrays_stand_beside_the_same_bits(prepared, make_competition, tmp_path):
    asked = make_competition(report={"metrics": METRICS}, splits={"forget": {"by": "class", "classes": (3,)}})
    plain = make_competition(splits={"forget": {"by": "class", "classes": (3,)}})
    for name, one in (("asked", asked), ("plain", plain)):
        prepare_split(one, "public", tmp_path / name)
    assert Manifest.read(tmp_path / "asked").evaluation.capture == (1, 3)
    for path in (*OUTPUT_PATHS.values(), ORIGINAL_OUTPUTS):
        if not (tmp_path / "plain" / path).is_file():
            continue
        found, before = (read_stored_outputs(tmp_path / name / path)[0] for name in ("asked", "plain"))
        assert found.confidences.tobytes() == before.confidences.tobytes()
        assert found.captured["forget_loss"].shape == found.confidences.shape
        assert found.captured["confusion"].shape == (len(found), 3, 10, 10)
        assert dict(before.captured) == {}


def test_runs_store_what_the_split_was_prepared_with(make_competition: MakeCompetition, tmp_path: Path) -> None:
    prepare_split(make_competition(report={"capture": 2}), "public", tmp_path)
    run = SplitEvaluator.load(tmp_path).evaluate_state(load_original(tmp_path))
    stored = read_stored_outputs(tmp_path / ORIGINAL_OUTPUTS)[0]
    assert set(run.captured) == set(stored.captured)
    assert run.captured["test_logits"].dtype == np.float16
    untrained = read_tensors(tmp_path / RANDOM_OUTPUTS)["random_forget_logits"].numpy()
    assert untrained.shape == (5, *run.captured["forget_logits"].shape)
    assert len(np.unique(untrained.round(4), axis=0)) == 5, "each network is drawn by a seed of its own"
    np.testing.assert_array_equal(run.captured["forget_loss"], stored.captured["forget_loss"][0])


def test_more_metrics_later_train_no_stored_model_again(make_competition: MakeCompetition, tmp_path: Path) -> None:
    prepare_split(make_competition(), "public", tmp_path)
    models = tmp_path / "hidden/retrained/models-00000.safetensors"
    before, outputs = models.stat().st_mtime_ns, read_stored_outputs(tmp_path / OUTPUT_PATHS["oracle"])[0]
    prepare_split(make_competition(report={"metrics": ["accuracy_gap"]}), "public", tmp_path)
    assert models.stat().st_mtime_ns == before
    after = read_stored_outputs(tmp_path / OUTPUT_PATHS["oracle"])[0]
    assert after.confidences.tobytes() == outputs.confidences.tobytes()
    assert "forget_correct" in after.captured


OF_SUBMISSIONS = [entry.id for entry in metrics().values() if entry.scope == Scope.SUBMISSION]

OF_IMAGES = [name for name in OF_SUBMISSIONS if lacking_for_metric(name, "image-classification") is None]

OF_ANSWERS = [name for name in OF_SUBMISSIONS if lacking_for_metric(name, "causal-lm") is None]

SALIENCY = ("mia_saliency_forget_retain", "mia_saliency_forget_test", "mia_saliency_test_retain", "miau_saliency")


def stored_arrays(metric_id: str) -> set[str]:
    needed = (name for need in metrics()[metric_id].needs.values() for name in need.array_names)
    return {name for name in needed if name in ARRAYS}


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A split with every capture level that images have, and probes."""
    out = tmp_path_factory.mktemp("captured") / "public"
    prepare_split(competition(report={"capture": 3, "keep_weights": 2}), "public", out)
    return out


def test_every_metric_is_for_some_kind_of_task() -> None:
    assert set(OF_IMAGES) | set(OF_ANSWERS) == set(OF_SUBMISSIONS)


def test_every_metric_of_images_is_computed_from_what_is_stored(split: Path) -> None:
    """The oracle stands for a submission; of the runs it lacks the time alone, which a run's result holds."""
    unlearned = read_outputs(split, "oracle").arrays() | {"wall_time_s": np.ones(5)}
    probed = {"unlearned": read_probed_references(split)["oracle"]}
    found = evaluate(split_inputs(split, unlearned, scored_by=competition().scoring, probed=probed), OF_IMAGES)
    without = {name: each.not_computed for name, each in found.items() if each.result is None}
    own = {name for name in OF_IMAGES if any(ARRAYS[array].own for array in stored_arrays(name))}
    assert own == {"gaussian_score", *SALIENCY}
    assert "[splits.recipes]" in without.pop("recipe_spread"), "this split has none"
    assert without.keys() == own, "their arrays are their user's: poisoned training, or maps of large sets"


@pytest.mark.parametrize(
    ("validation", "asked", "expected"),
    [(180, None, 180), (400, None, 256), (3000, None, 1500), (9000, None, 2048), (9000, 4000, 4000), (100, 4000, 100)],
)
def test_the_sample_grows_with_the_split(validation, asked, expected, make_competition):
    splits = {} if asked is None else {"sample_images": asked}
    parts = sample_parts(np.arange(validation), make_competition(splits=splits))
    assert len(np.unique(np.concatenate(list(parts.values())))) == sum(map(len, parts.values())) == expected


def test_a_validation_set_too_small_for_a_sample_is_named(make_competition: MakeCompetition) -> None:
    with pytest.raises(InvalidSplit, match=r"raise splits.validation_fraction"):
        sample_parts(np.arange(2), make_competition())
