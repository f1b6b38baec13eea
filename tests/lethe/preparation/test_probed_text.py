"""Splits of language models whose competition keeps weights for probes."""

from pathlib import Path

import numpy as np
import pytest

from lethe.competition.file import Scoring, parse_competition
from lethe.errors import InvalidCompetitionFile
from lethe.evaluation.inference import load_original
from lethe.evaluation.model_outputs import read_outputs, read_probed_references
from lethe.evaluation.probes.split_probes import probed_split
from lethe.evaluation.split_inputs import split_inputs
from lethe.metrics import evaluate
from lethe.metrics.weights.probes import ATTACKS
from lethe.preparation.prepare import prepare_split
from tests.support.towns import towns_toml, write_towns

K = 2


def toml(root: Path, metric: str) -> str:
    text = towns_toml(root, n_models=4, epochs=40, metrics=(metric,))
    return text.replace("[report]", f"[report]\nkeep_weights = {K}")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_towns(tmp_path_factory.mktemp("text") / "towns")
    out = tmp_path_factory.mktemp("split")
    prepare_split(parse_competition(toml(root, "robustness")), "public", out)
    return out


@pytest.mark.slow
def test_references_hold_knowledge_after_attacks(split: Path) -> None:
    stored = read_probed_references(split)
    assert set(stored) == {"retrained", "oracle", "original"}
    assert set(stored["retrained"]) == {"attacked_knowledge", "loss_barrier", "weight_distance", "weight_norm"}
    assert stored["retrained"]["attacked_knowledge"].shape == (K, len(ATTACKS))
    known = {side: arrays["attacked_knowledge"][:, 0].mean() for side, arrays in stored.items()}
    assert known["original"] > max(known["retrained"], known["oracle"]) + 0.1


def test_original_is_known_to_know_the_answers(split: Path) -> None:
    probed = probed_split(split, [load_original(split)] * K)
    np.testing.assert_array_equal(probed["unlearned"]["loss_barrier"], [0.0] * K)
    unlearned = dict(read_outputs(split, "oracle").arrays())
    found = evaluate(split_inputs(split, unlearned, scored_by=Scoring(), probed=probed), ["robustness"])["robustness"]
    assert found.result is not None, found.not_computed
    assert found.result.value > 0.1
    assert found.result.table["original"] == found.result.table["unlearned"]


def test_probes_of_images_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCompetitionFile, match=r"residual_knowledge needs the array `perturbed_accuracy`"):
        parse_competition(toml(tmp_path, "residual_knowledge"))
