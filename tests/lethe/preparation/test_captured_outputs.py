"""Splits whose competition asks for metrics: what is stored, and that nothing else changes."""

from pathlib import Path

import numpy as np

from lethe.data.files import read_tensors
from lethe.evaluation.inference import SplitEvaluator, load_original
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import ORIGINAL_OUTPUTS, OUTPUT_PATHS, RANDOM_OUTPUTS, read_stored_outputs
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import MakeCompetition

METRICS = ["accuracy_gap", "targeted_error"]


def test_captured_arrays_stand_beside_the_same_bits(prepared, make_competition, tmp_path):
    asked = make_competition(report={"metrics": METRICS}, splits={"forget": {"by": "class", "classes": (3,)}})
    plain = make_competition(splits={"forget": {"by": "class", "classes": (3,)}})
    for name, competition in (("asked", asked), ("plain", plain)):
        prepare_split(competition, "public", tmp_path / name)
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
