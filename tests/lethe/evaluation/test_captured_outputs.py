"""Arrays that runs store: what they are, shards of them, and splits whose competition asks for metrics."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
    split_inputs,
)
from lethe.evaluation.shard_outputs import (
    CapturedSets,
    ShardOutputs,
    capture,
    confusion,
    cross_entropy,
    half_precision,
    join,
    retain_subset,
)
from lethe.metrics import Scope, evaluate, metrics
from lethe.metrics.core.array_catalogue import ARRAYS
from lethe.preparation.prepare import prepare_split
from lethe.preparation.public_sample import sample_parts
from tests.lethe.conftest import MakeCompetition, competition


def sets(seed: int = 0, *, swapped: bool = False) -> CapturedSets:
    random = np.random.default_rng(seed)

    def logits(n: int) -> np.ndarray:
        return random.normal(0, 3, (n, 4)).astype(np.float32)

    labels = {name: random.integers(0, 4, n) for name, n in (("forget", 6), ("retain", 40), ("test", 10))}
    return CapturedSets(
        forget=logits(6),
        retain=logits(40),
        test=logits(10),
        forget_labels=labels["forget"],
        retain_labels=labels["retain"],
        test_labels=labels["test"],
        true_forget_labels=(labels["forget"] + 1) % 4 if swapped else labels["forget"],
    )


def test_capture_stores_nothing_without_levels() -> None:
    assert capture((), sets()) == {}


def test_losses_are_cross_entropies_in_nats() -> None:
    found = sets()
    arrays = capture((1,), found)
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(found.test).double(), torch.from_numpy(found.test_labels), reduction="none"
    )
    np.testing.assert_allclose(arrays["test_loss"], expected.numpy(), rtol=1e-6)
    assert arrays["forget_correct"].tolist() == (found.forget.argmax(1) == found.forget_labels).tolist()
    assert set(arrays) == {"forget_correct", "forget_loss", "test_loss", "retain_loss"}


def test_retain_arrays_are_of_the_stored_subset() -> None:
    found = sets()
    kept = retain_subset(40, n_forget=6, n_test=10)
    assert len(kept) == 10
    np.testing.assert_array_equal(
        capture((1,), found)["retain_loss"], cross_entropy(found.retain[kept], found.retain_labels[kept])
    )


def test_confusion_counts_given_true_and_test_labels() -> None:
    found = sets(swapped=True)
    counts = capture((3,), found)["confusion"]
    assert counts.shape == (3, 4, 4)
    assert counts.sum(axis=(1, 2)).tolist() == [6, 6, 10]
    np.testing.assert_array_equal(counts[0].sum(axis=1), np.bincount(found.forget_labels, minlength=4))
    np.testing.assert_array_equal(counts[1].sum(axis=1), np.bincount(found.true_forget_labels, minlength=4))
    np.testing.assert_array_equal(counts[2], confusion(found.test, found.test_labels))


def test_half_precision_keeps_large_logits_finite() -> None:
    assert np.isfinite(half_precision(np.array([[1e9, -1e9]], dtype=np.float32))).all()


@given(n_retain=st.integers(1, 200), n_forget=st.integers(1, 50), n_test=st.integers(1, 50))
def test_retain_subset_is_a_fixed_ascending_sample(n_retain: int, n_forget: int, n_test: int) -> None:
    kept = retain_subset(n_retain, n_forget=n_forget, n_test=n_test)
    assert len(kept) == min(n_retain, max(n_forget, n_test))
    assert (np.diff(kept) > 0).all()
    np.testing.assert_array_equal(kept, retain_subset(n_retain, n_forget=n_forget, n_test=n_test))


@pytest.mark.parametrize("labels", [[0, 3], [1, 1]])
def test_confusion_of_perfect_predictions_is_diagonal(labels: list[int]) -> None:
    logits = np.eye(4, dtype=np.float32)[labels]
    counts = confusion(logits, np.array(labels))
    assert counts.trace() == counts.sum() == 2


def outputs(runs: int, *, classes: int | None = 3) -> ShardOutputs:
    rng = np.random.default_rng(runs)
    return ShardOutputs(
        confidences=rng.normal(size=(runs, 5)),
        retain_accuracy=rng.random(runs),
        test_accuracy=rng.random(runs),
        wall_time_s=rng.random(runs),
        class_accuracy=None if classes is None else rng.random((runs, 2, classes)).astype(np.float32),
    )


def test_what_is_stored_is_read_back() -> None:
    before = outputs(4)
    after = ShardOutputs.from_bytes(before.to_bytes())
    assert all(np.array_equal(getattr(before, name), getattr(after, name)) for name in vars(before))


def test_shards_are_joined_in_order() -> None:
    whole = join([outputs(2), outputs(3)])
    assert whole.class_accuracy is not None
    assert whole.class_accuracy.shape == (5, 2, 3)
    assert np.array_equal(whole.confidences[2:], outputs(3).confidences)


def test_shard_without_class_accuracies_drops_them_for_all() -> None:
    older = ShardOutputs.from_bytes(outputs(2, classes=None).to_bytes())
    assert older.class_accuracy is None
    assert join([outputs(3), older]).class_accuracy is None
    assert join([outputs(3), older]).retain_accuracy.shape == (5,)


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
