"""Splits of setup reuse-n-n: N original models beside the visible one, stored, hashed and resumable."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load, load_file

from lethe.data.errors import DamagedSplit, InvalidSplit, SplitNotPrepared
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.evaluation.manifest import Manifest, verify_split
from lethe.evaluation.model_outputs import ORIGINAL, find_place, read_original, read_outputs
from lethe.preparation import image_task, model_shards
from lethe.preparation.prepare import begin_split, prepare_shard, prepare_split
from lethe.preparation.step_cache import PreparationProgress
from lethe.runtime.weights_layout import read_layout
from tests.lethe.conftest import competition

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


def test_an_original_alone_holds_the_weights_of_its_place(with_originals: Path) -> None:
    stacked = load_file(with_originals / "hidden/originals/models-00001.safetensors")
    alone = load(original(with_originals, 4))
    assert {name: value.tolist() for name, value in alone.items()} == {
        name: value[1].tolist() for name, value in stacked.items()
    }


def test_stored_outputs_are_those_of_the_originals(with_originals: Path) -> None:
    evaluator, outputs = SplitEvaluator.load(with_originals), read_outputs(with_originals, "originals")
    for index in range(5):
        assert np.array_equal(
            evaluator.evaluate(original(with_originals, index)).confidences, outputs.confidences[index]
        )


def test_originals_know_the_forget_set_and_retrained_do_not(with_originals: Path) -> None:
    originals, retrained = (read_outputs(with_originals, kind) for kind in ("originals", "retrained"))
    assert np.median(originals.confidences) > np.median(retrained.confidences) + 0.2


def test_another_file_layout_gives_the_same_models(with_originals: Path, tmp_path: Path) -> None:
    prepare_split(competition(metric=N_N), "public", tmp_path)
    assert [original(tmp_path, index) for index in range(5)] == [original(with_originals, index) for index in range(5)]


def test_reuse_n_1_split_becomes_reuse_n_n_by_adding_originals(prepared, with_originals, tmp_path):
    out = Path(shutil.copytree(prepared, tmp_path / "copy"))
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    prepare_split(competition(metric=N_N), "public", out)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert {path.relative_to(out).as_posix() for path in out.rglob("*.safetensors") if path not in kept} == FILES
    assert original(out, 2) == original(with_originals, 2)


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_damaged_file_of_originals_is_named_and_made_again(with_originals: Path, tmp_path: Path, path: str) -> None:
    copy = Path(shutil.copytree(with_originals, tmp_path / "copy"))
    good = (copy / path).read_bytes()
    (copy / path).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    messages: list[PreparationProgress] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_shards, "MODELS_PER_SHARD", 3)
        prepare_split(competition(metric=N_N), "public", copy, progress=messages.append)
    assert [path in progress.message for progress in messages if progress.message] == [True]
    assert (copy / path).read_bytes() == good


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
