"""Every metric of a submission has arrays that a prepared split and its runs store."""

from pathlib import Path

import numpy as np
import pytest

from lethe.competition.metric_requests import lacking_for_metric
from lethe.evaluation.model_outputs import read_outputs, read_probed_references
from lethe.evaluation.split_inputs import split_inputs
from lethe.metrics import Scope, evaluate, metrics
from lethe.metrics.core.array_catalogue import ARRAYS
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import competition

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
