"""Splits whose competition keeps weights for probes: what is stored of the references (of texts: test_text_task.py)."""

from pathlib import Path

import numpy as np
import pytest

from lethe.competition.file import parse_competition
from lethe.errors import InvalidCompetitionFile
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import (
    ORIGINAL_OUTPUTS,
    OUTPUT_PATHS,
    PROBED_REFERENCES,
    read_outputs,
    read_probed_references,
)
from lethe.evaluation.probes.split_probes import probed_split, stored_models
from lethe.evaluation.split_inputs import split_inputs
from lethe.metrics import Side
from lethe.preparation.prepare import prepare_split
from lethe.preparation.step_cache import PreparationProgress
from tests.lethe.conftest import competition
from tests.support.towns import towns_toml

K = 2

ORACLE = "hidden/oracle/models-00000.safetensors"


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A split that was prepared without weights first: whoever asks for them later gets them added."""
    out = tmp_path_factory.mktemp("probed") / "public"
    plain = prepare_split(competition(), "public", out)
    asked = prepare_split(competition(report={"keep_weights": K}), "public", out)
    assert set(asked.files) - set(plain.files) == {PROBED_REFERENCES, ORACLE}
    for path, record in plain.files.items():
        assert asked.files[path] == record, path
    assert asked.evaluation == plain.evaluation
    return out


def test_stored_oracle_models_are_those_that_were_evaluated(probed: Path) -> None:
    evaluator, outputs = SplitEvaluator.load(probed), read_outputs(probed, "oracle")
    models = stored_models(probed, "oracle", 5)
    assert len(models) == K
    for number, state in enumerate(models):
        assert evaluator.evaluate_state(state).confidences.tobytes() == outputs.confidences[number].tobytes()


def test_references_are_probed_as_checkpoints_are(probed: Path) -> None:
    """The offline probes are given the original K times, and compute the references' arrays themselves."""
    offline = probed_split(probed, [load_original(probed)] * K)
    stored = read_probed_references(probed)
    assert set(stored) == {"retrained", "oracle", "original", "shared"}
    for side, arrays in stored.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, offline[side][name], err_msg=f"{side} {name}")
    np.testing.assert_array_equal(offline["unlearned"]["relearn_epochs"], [0] * K)
    np.testing.assert_array_equal(offline["unlearned"]["weight_distance"], stored["original"]["weight_distance"])


def test_metrics_read_the_references_arrays(probed: Path) -> None:
    inputs = split_inputs(probed, None, scored_by=competition().scoring)
    assert inputs.array(Side.ORACLE, "relearn_epochs").shape == (K,)
    assert inputs.array(Side.SHARED, "perturbation_radii").shape == (4,)


def test_references_are_forgotten_when_no_weights_are_kept(tmp_path: Path) -> None:
    prepare_split(competition(report={"keep_weights": 1}), "public", tmp_path)
    assert PROBED_REFERENCES in Manifest.read(tmp_path).files
    prepare_split(competition(), "public", tmp_path)
    assert PROBED_REFERENCES not in Manifest.read(tmp_path).files
    inputs = split_inputs(tmp_path, None, scored_by=competition().scoring)
    assert not inputs.has(Side.RETRAINED, "relearn_epochs"), "a file that the manifest does not name is not read"


def test_more_weights_than_models_are_as_many_as_there_are(tmp_path: Path) -> None:
    told: list[PreparationProgress] = []
    asked = competition(n_models=3, report={"keep_weights": 8})
    manifest = prepare_split(asked, "public", tmp_path, progress=told.append)
    probed = [(each.done, each.total) for each in told if each.stage == "probing references"]
    of_each = [(number, 7) for number in range(1, 8)]  # 3 retrained, 3 of the oracle, the original
    assert probed == [(0, 1), *of_each, (1, 1)]
    assert {*OUTPUT_PATHS.values()} - {OUTPUT_PATHS["originals"]} | {ORIGINAL_OUTPUTS} <= set(manifest.files)
    assert read_probed_references(tmp_path)["oracle"]["relearn_epochs"].shape == (3,)


def test_probes_of_images_alone_are_refused(tmp_path: Path) -> None:
    text = towns_toml(tmp_path, metrics=("residual_knowledge",)).replace("[report]", f"[report]\nkeep_weights = {K}")
    with pytest.raises(InvalidCompetitionFile, match=r"residual_knowledge needs the array `perturbed_accuracy`"):
        parse_competition(text)
