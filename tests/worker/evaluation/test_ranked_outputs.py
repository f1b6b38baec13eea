"""What ranks an evaluation, from stored outputs: exact retraining is at the upper end, the original model at 0."""

from pathlib import Path

import numpy as np
import pytest

from lethe.competition.file import CompetitionFile
from lethe.data.errors import InvalidSplit
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import ORIGINAL_OUTPUTS, read_outputs, read_stored_outputs
from lethe.evaluation.ranking import RankingValue, score_outputs
from lethe.evaluation.shard_outputs import ShardOutputs
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import competition
from worker.evaluation.scoring_job import compared_with, rank_outputs, require_ranking

N = 6
METRICS = ["accuracy_gap", "klom", "retdev", "rte"]


def file(**ranking: object) -> CompetitionFile:
    return competition(
        n_models=N,
        training={"epochs": 12},
        scoring={"bootstrap_resamples": 20},
        report={"metrics": METRICS},
        ranking=ranking,
    )


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranked") / "public"
    prepare_split(file(), "public", out)
    return out


def runs(split: Path, kind: str) -> ShardOutputs:
    """Return outputs of the oracle, or of runs that all gave the original model."""
    if kind == "oracle":
        stored, repeats = read_outputs(split, "oracle"), 1
    else:
        stored, repeats = read_stored_outputs(split / ORIGINAL_OUTPUTS)[0], N
    own = {name: np.repeat(values, repeats, axis=0) for name, values in stored.arrays().items()}
    named = {name: own.pop(name) for name in ("confidences", "retain_accuracy", "test_accuracy", "class_accuracy")}
    return ShardOutputs(**named, wall_time_s=np.ones(N), captured=own)


def ranked(split: Path, asked: CompetitionFile, kind: str) -> RankingValue:
    unlearned, retrained, scoring = runs(split, kind), compared_with(split, "retrained"), asked.scoring
    oracle = score_outputs(compared_with(split, "oracle"), retrained, scoring=scoring)
    found = score_outputs(unlearned, retrained, scoring=scoring)
    return rank_outputs(asked, found, unlearned, oracle=oracle, split_dir=split, scoring=scoring, attack_seed=0)


@pytest.mark.parametrize("by", ["klom", ["klom", "retdev"]])
@pytest.mark.parametrize("combine", ["mean", "harmonic-mean", "worst"])
def test_references_are_the_ends_of_the_scale(split: Path, by: object, combine: str) -> None:
    asked = file(by=by, combine=combine)
    assert ranked(split, asked, "oracle").value == pytest.approx(1.0)
    assert ranked(split, asked, "original").value == pytest.approx(0.0)


def test_score_alone_is_the_published_one(split: Path) -> None:
    retrained, asked = compared_with(split, "retrained"), file()
    expected = score_outputs(compared_with(split, "oracle"), retrained, scoring=asked.scoring)
    found = ranked(split, asked, "oracle")
    assert (found.value, found.interval) == (expected.headline, expected.interval)


def test_preparation_refuses_a_ranking_that_cannot_order(split: Path) -> None:
    manifest, asked = Manifest.read(split), file(by="klom")
    retrained = compared_with(split, "retrained")
    oracle = score_outputs(compared_with(split, "oracle"), retrained, scoring=asked.scoring)
    before = sorted(path.name for path in split.iterdir())
    require_ranking(asked, split, manifest, oracle=oracle, attack_seed=0)
    with pytest.raises(InvalidSplit, match="rte has no value for exact retraining"):
        require_ranking(file(by=["klom", "rte"]), split, manifest, oracle=oracle, attack_seed=0)
    assert sorted(path.name for path in split.iterdir()) == before
