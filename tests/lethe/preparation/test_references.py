"""What a split stores on request: probes of references, models of other recipes, N original models."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from lethe.competition.file import Scoring, parse_competition
from lethe.data.errors import DamagedSplit, InvalidSplit, SplitNotPrepared
from lethe.data.files import read_tensors
from lethe.errors import InvalidCompetitionFile
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.manifest import Manifest, verify_split
from lethe.evaluation.model_outputs import (
    ORIGINAL,
    ORIGINAL_OUTPUTS,
    OUTPUT_PATHS,
    PROBED_REFERENCES,
    RECIPE_OUTPUTS,
    find_place,
    read_original,
    read_outputs,
    read_probed_references,
    split_inputs,
)
from lethe.evaluation.probes.split_probes import probed_split, stored_models
from lethe.metrics import Side, evaluate
from lethe.preparation import image_task, model_shards
from lethe.preparation.prepare import begin_split, prepare_shard, prepare_split
from lethe.preparation.step_cache import PreparationProgress
from lethe.runtime.weights_layout import read_layout
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


VARIATIONS = [{"epochs": 3}, {"weight_decay": 5e-4, "batch_size": 32}]


def asked(n_models: int = 4, variations: list[dict[str, float]] = VARIATIONS) -> object:
    return competition(
        splits={"recipes": {"models": n_models, "variations": variations}}, report={"metrics": ["recipe_spread"]}
    )


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recipes") / "public"
    plain = prepare_split(competition(), "public", out)
    varied = prepare_split(asked(), "public", out)
    assert set(varied.files) - set(plain.files) == {RECIPE_OUTPUTS}
    assert all(varied.files[path] == record for path, record in plain.files.items())
    return out


def test_models_of_every_variation_are_stored(split: Path) -> None:
    arrays = {name: tensor.numpy() for name, tensor in read_tensors(split / RECIPE_OUTPUTS).items()}
    n_forget = read_outputs(split).confidences.shape[1]
    assert arrays["recipe_confidences"].shape == (2, 4, n_forget)
    assert arrays["recipe_test_accuracy"].shape == (2, 4)
    training = competition().training
    assert arrays["recipe_settings"].tolist() == [
        [3.0, training.weight_decay, training.batch_size, 0.0],
        [training.epochs, 5e-4, 32.0, 0.0],
    ]


def test_models_differ_from_each_other_and_from_the_standard_ones(split: Path) -> None:
    arrays = read_tensors(split / RECIPE_OUTPUTS)["recipe_confidences"].numpy()
    rows = np.concatenate([*arrays, read_outputs(split).confidences, read_outputs(split, "oracle").confidences])
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_metric_of_the_split_is_computed(split: Path) -> None:
    inputs = split_inputs(split, dict(read_outputs(split, "oracle").arrays()), scored_by=Scoring())
    found = evaluate(inputs, ["recipe_spread"])["recipe_spread"]
    assert found.result is not None, found.not_computed
    assert found.result.value == 1.0


def test_other_variations_are_made_and_nothing_else(split: Path) -> None:
    before = Manifest.read(split)
    after = prepare_split(asked(variations=[{"epochs": 3}]), "public", split)
    changed = {path for path, record in after.files.items() if before.files.get(path) != record}
    assert changed == {RECIPE_OUTPUTS}
    assert read_tensors(split / RECIPE_OUTPUTS)["recipe_confidences"].shape[0] == 1


def test_preparation_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def break_off(made: PreparationProgress) -> None:
        if "weight-decay" in made.stage:
            raise Broken

    with pytest.raises(Broken):
        prepare_split(asked(), "public", tmp_path, progress=break_off)
    stages: list[str] = []
    prepare_split(asked(), "public", tmp_path, progress=lambda made: stages.append(made.stage))
    assert not any("epochs-3" in stage for stage in stages), "its models were trained before"
    assert any("batch-size-32" in stage for stage in stages)


FILES = {"hidden/originals/models-00000.safetensors", "hidden/originals/outputs.safetensors"}
N_N = {"setup": "reuse-n-n"}


@pytest.fixture(scope="module")
def with_originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared split of setup reuse-n-n in two files of models: read it, do not change it."""
    out = tmp_path_factory.mktemp("splits") / "public"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_shards, "MODELS_PER_SHARD", 3)
        prepare_split(competition(metric=N_N), "public", out)
    return out


def original(split_dir: Path, index: int) -> bytes:
    return read_original(split_dir, *find_place(Manifest.read(split_dir), index))


def test_manifest_names_the_setup_and_hashes_the_originals(with_originals: Path, prepared: Path) -> None:
    manifest = Manifest.read(with_originals)
    assert (manifest.setup, Manifest.read(prepared).setup) == ("reuse-n-n", "reuse-n-1")
    files = {path for path in manifest.files if "originals" in path}
    assert files == FILES | {"hidden/originals/models-00001.safetensors"}
    assert verify_split(with_originals) == []
    assert manifest.seeds["originals"] == manifest.seeds["retrained"].replace("/retrained/", "/originals/")
    assert manifest.quality["originals-outputs"]["mean_retain_accuracy"] > 0.6


def test_reuse_n_1_has_no_originals_and_the_rest_is_the_same(with_originals: Path, prepared: Path) -> None:
    one, many = Manifest.read(prepared), Manifest.read(with_originals)
    assert not (prepared / "hidden/originals").exists()
    assert not any("originals" in name for name in (*one.files, *one.steps, *one.seeds, *one.quality))
    visible = {path: record for path, record in many.files.items() if path.startswith(("visible", "sample"))}
    assert visible == {path: record for path, record in one.files.items() if path.startswith(("visible", "sample"))}
    assert np.array_equal(read_outputs(prepared).confidences, read_outputs(with_originals).confidences)


def test_the_originals_are_as_many_as_runs_and_all_different(with_originals: Path) -> None:
    models = {original(with_originals, index) for index in range(5)}
    assert len(models | {(with_originals / ORIGINAL).read_bytes()}) == 6


def test_an_original_has_the_header_of_the_visible_one(with_originals: Path) -> None:
    assert read_layout(original(with_originals, 4)) == read_layout((with_originals / ORIGINAL).read_bytes())


def test_stored_outputs_are_those_of_the_originals(with_originals: Path) -> None:
    evaluator, outputs = SplitEvaluator.load(with_originals), read_outputs(with_originals, "originals")
    for index in range(5):
        assert np.array_equal(
            evaluator.evaluate(original(with_originals, index)).confidences, outputs.confidences[index]
        )


def test_originals_know_the_forget_set_and_retrained_do_not(with_originals: Path) -> None:
    originals, retrained = (read_outputs(with_originals, kind) for kind in ("originals", "retrained"))
    assert np.median(originals.confidences) > np.median(retrained.confidences) + 0.2


def test_reuse_n_1_split_becomes_reuse_n_n_by_adding_originals(prepared, with_originals, tmp_path):
    out = Path(shutil.copytree(prepared, tmp_path / "copy"))
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    prepare_split(competition(metric=N_N), "public", out)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert {path.relative_to(out).as_posix() for path in out.rglob("*.safetensors") if path not in kept} == FILES
    assert [original(out, index) for index in range(5)] == [original(with_originals, index) for index in range(5)]


def test_shards_of_originals_may_be_made_apart(with_originals, tmp_path, monkeypatch, make_competition):
    monkeypatch.setattr(model_shards, "MODELS_PER_SHARD", 3)
    wanted = make_competition(metric=N_N)
    assert len(begin_split(wanted, "public", tmp_path, share_from_s=0)) == 6
    for kind in ("retrained", "oracle", "originals"):
        for shard in (1, 0):
            prepare_shard(wanted, "public", tmp_path, kind=kind, shard=shard)
    monkeypatch.setattr(image_task, "train_models", lambda *_, **__: pytest.fail("trained again"))
    prepare_split(wanted, "public", tmp_path)
    assert [original(tmp_path, index) for index in range(5)] == [original(with_originals, index) for index in range(5)]


def test_a_shard_of_originals_is_refused_in_reuse_n_1(tmp_path: Path) -> None:
    with pytest.raises(InvalidSplit, match="setup reuse-n-1 has one original model"):
        prepare_shard(competition(), "public", tmp_path, kind="originals", shard=0)


def test_a_split_without_the_original_is_named(prepared: Path, with_originals: Path) -> None:
    with pytest.raises(SplitNotPrepared, match="prepared for setup reuse-n-1 and has no original model 0"):
        find_place(Manifest.read(prepared), 0)
    with pytest.raises(SplitNotPrepared, match="has no original model 5"):
        find_place(Manifest.read(with_originals), 5)


def test_a_file_of_models_cut_short_is_damage(with_originals: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(with_originals, tmp_path / "copy"))
    path, position = find_place(Manifest.read(copy), 0)
    (copy / path).write_bytes((copy / path).read_bytes()[:-8])
    with pytest.raises(DamagedSplit, match="models-00000"):
        read_original(copy, path, position)
