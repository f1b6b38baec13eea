import json
import multiprocessing
import shutil
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lethe.data.errors import InvalidDataset, InvalidSplit, UntrainedModel
from lethe.data.stored_sets import StoredSet
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.evaluation.manifest import Manifest, verify_split
from lethe.evaluation.model_outputs import read_outputs
from lethe.networks.builders import build
from lethe.preparation import image_task, model_shards, preparation, prepare
from lethe.preparation.prepare import begin_split, prepare_shard, prepare_split
from lethe.preparation.step_cache import PreparationProgress, describe_version_change
from lethe.runtime.data_loaders import load_data, make_loaders
from tests.lethe.conftest import MakeCompetition

LAYOUT = {
    "manifest.json",
    "report.json",
    "report.html",
    *(
        f"{folder}/{name}.safetensors"
        for folder in ("visible", "sample")
        for name in ("retain", "forget", "validation")
    ),
    *(
        f"{folder}/{name}"
        for folder in ("visible", "sample")
        for name in ("network.json", "original_model.safetensors")
    ),
    "hidden/test.safetensors",
    "hidden/retrained/models-00000.safetensors",
    "hidden/retrained/outputs.safetensors",
    "hidden/oracle/outputs.safetensors",
    "hidden/original/outputs.safetensors",
}


@pytest.fixture
def copy(prepared: Path, tmp_path: Path) -> Path:
    """A prepared split that a test may damage."""
    return Path(shutil.copytree(prepared, tmp_path / "copy"))


def prepare_again(make_competition: MakeCompetition, out: Path) -> list[str]:
    messages: list[PreparationProgress] = []
    prepare_split(make_competition(), "public", out, progress=messages.append)
    return [progress.message for progress in messages if progress.message]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_layout_is_the_documented_one(prepared: Path) -> None:
    assert set(content(prepared)) == LAYOUT


def test_manifest_lists_every_other_file_and_nothing_is_damaged(prepared: Path) -> None:
    manifest = Manifest.read(prepared)
    assert set(manifest.files) == LAYOUT - {"manifest.json"}
    assert verify_split(prepared) == []
    assert manifest.retraining_time_s > 0
    assert manifest.versions["torch"] == torch.__version__
    assert manifest.n_models == 5
    written = json.loads((prepared / "manifest.json").read_text())
    assert written["recipe"]["splits"]["train_size"] == 200
    assert written["seeds"]["original"] > 0


def test_outputs_have_a_row_per_model_and_column_per_image(prepared: Path) -> None:
    retrained, oracle = read_outputs(prepared), read_outputs(prepared, "oracle")
    assert retrained.confidences.shape == oracle.confidences.shape == (5, 20)
    assert retrained.confidences.dtype == np.float64
    assert not np.array_equal(retrained.confidences, oracle.confidences)
    assert len(np.unique(retrained.confidences[:, 0])) == 5


def test_stored_outputs_are_those_of_the_stored_models(prepared: Path) -> None:
    models = load_file(prepared / "hidden/retrained/models-00000.safetensors")
    evaluator = SplitEvaluator.load(prepared)
    outputs = read_outputs(prepared)
    for index in (4, 0):
        run = evaluator.evaluate_state({name: stacked[index] for name, stacked in models.items()})
        assert np.array_equal(run.confidences, outputs.confidences[index])
        assert run.retain_accuracy == outputs.retain_accuracy[index]


def test_original_learnt_and_fits_the_network(prepared: Path) -> None:
    data = load_data(prepared / "visible")
    net = build(data.network)
    net.load_state_dict(data.original_state)
    batch = next(iter(make_loaders(data, batch_size=200).retain))
    accuracy = (net(batch["image"]).argmax(1) == batch["age_group"]).float().mean()
    assert accuracy > 0.7


def test_sample_shares_no_image_with_any_other_set_but_validation(prepared: Path) -> None:
    sample = {i for name in ("retain", "forget", "validation") for i in ids(prepared / f"sample/{name}.safetensors")}
    assert sample <= ids(prepared / "visible/validation.safetensors")
    for path in ("visible/retain.safetensors", "visible/forget.safetensors", "hidden/test.safetensors"):
        assert not sample & ids(prepared / path)


def ids(path: Path) -> set[int]:
    return set(StoredSet.read(path).ids.tolist())


def test_private_split_forgets_others_and_has_the_same_sample(prepared, tmp_path, make_competition):
    prepare_split(make_competition(), "private", tmp_path)
    assert not ids(prepared / "visible/forget.safetensors") & ids(tmp_path / "visible/forget.safetensors")
    assert content(prepared / "sample") == content(tmp_path / "sample")
    assert (prepared / "visible/original_model.safetensors").read_bytes() != (
        tmp_path / "visible/original_model.safetensors"
    ).read_bytes()


def test_preparing_twice_gives_the_same_bytes_on_any_threads(prepared, tmp_path, make_competition):
    threads, seen = torch.get_num_threads(), list[PreparationProgress]()
    torch.set_num_threads(2)
    try:
        prepare_split(make_competition(), "public", tmp_path, progress=seen.append)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    counts = [(progress.done, progress.total) for progress in seen if progress.stage == "retrained models"]
    assert counts == sorted(counts)
    assert counts[-1] == (5, 5)
    first, second = content(prepared), content(tmp_path)
    assert {name for name in first if first[name] != second[name]} == {"manifest.json"}  # it holds measured times


def test_second_call_makes_nothing_again(copy: Path, make_competition: MakeCompetition) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*.safetensors")}
    manifest = (copy / "manifest.json").read_bytes()
    assert prepare_again(make_competition, copy) == []
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*.safetensors")} == before
    assert (copy / "manifest.json").read_bytes() == manifest


@pytest.mark.parametrize("path", sorted(LAYOUT - {"manifest.json"}))
def test_a_damaged_file_is_named_and_made_again(copy: Path, make_competition: MakeCompetition, path: str) -> None:
    good = content(copy)
    damaged = bytearray(good[path])
    damaged[-1] ^= 1
    (copy / path).write_bytes(damaged)
    assert [damage.path for damage in verify_split(copy)] == [path]
    (message,) = prepare_again(make_competition, copy)
    assert path in message
    assert "wrong content" in message
    assert content(copy) == good | {"manifest.json": (copy / "manifest.json").read_bytes()}
    assert verify_split(copy) == []


def test_missing_and_short_files_are_named(copy: Path) -> None:
    (copy / "hidden/test.safetensors").unlink()
    (copy / "report.json").write_text("{}")
    assert [damage.problem for damage in verify_split(copy)] == ["missing", "wrong size"]


def test_a_preparation_cut_off_goes_on_where_it_stopped(tmp_path: Path, make_competition: MakeCompetition) -> None:
    def stop_at_outputs(progress: PreparationProgress) -> None:
        if progress.stage == "retrained models" and progress.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_split(make_competition(), "public", tmp_path, progress=stop_at_outputs)
    assert not (tmp_path / "manifest.json").exists()
    original = (tmp_path / "visible/original_model.safetensors").stat().st_mtime_ns
    prepare_split(make_competition(), "public", tmp_path)
    assert (tmp_path / "visible/original_model.safetensors").stat().st_mtime_ns == original
    assert verify_split(tmp_path) == []
    assert set(content(tmp_path)) == LAYOUT


def test_shards_made_by_several_processes_give_the_same_split(prepared, tmp_path, make_competition, monkeypatch):
    monkeypatch.setattr(model_shards, "MODELS_PER_SHARD", 2)
    competition = make_competition()
    assert len(begin_split(competition, "public", tmp_path, share_from_s=0)) == 6
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        jobs = [
            pool.submit(prepare_shard, competition, "public", tmp_path, kind=kind, shard=shard)
            for kind in ("retrained", "oracle")
            for shard in (2, 0, 1)
        ]
        for job in jobs:
            job.result()
    monkeypatch.setattr(image_task, "train_models", lambda *_, **__: pytest.fail("trained again"))
    prepare_split(competition, "public", tmp_path)
    for kind in ("retrained", "oracle"):
        ours, theirs = read_outputs(tmp_path, kind), read_outputs(prepared, kind)
        assert np.array_equal(ours.confidences, theirs.confidences)
    assert len(list((tmp_path / "hidden/retrained").glob("models-*"))) == 3


def test_other_library_versions_are_reported_not_recorded(copy, make_competition, monkeypatch):
    recorded = Manifest.read(copy).versions
    monkeypatch.setattr(preparation, "library_versions", lambda: recorded | {"torch": "9.9"})
    (message,) = prepare_again(make_competition, copy)
    assert f"torch {recorded['torch']} -> 9.9" in message
    assert Manifest.read(copy).versions == recorded


def test_build_that_was_not_written_down_is_no_change_of_version():
    assert describe_version_change({"torchvision": "0.26.0+cpu"}, {"torchvision": "0.26.0"}) == ""
    assert "torch 2.11.0+cpu -> 2.11.0+cu130" in describe_version_change(
        {"torch": "2.11.0+cpu"}, {"torch": "2.11.0+cu130"}
    )


def test_another_recipe_makes_everything_again(copy: Path, make_competition: MakeCompetition) -> None:
    messages: list[PreparationProgress] = []
    competition = make_competition(training={"epochs": 5, "learning_rate": 0.1})
    prepare_split(competition, "public", copy, progress=messages.append)
    assert any("another recipe" in progress.message for progress in messages)
    assert Manifest.read(copy).recipe["training"]["epochs"] == 5


def test_a_destroyed_manifest_is_said_and_made_again(copy: Path, make_competition: MakeCompetition) -> None:
    (copy / "manifest.json").write_text("{")
    messages = prepare_again(make_competition, copy)
    assert any("manifest.json is damaged" in message for message in messages)
    assert verify_split(copy) == []


def test_first_models_do_not_depend_on_how_many_there_are(prepared, tmp_path, make_competition):
    prepare_split(make_competition(n_models=3), "public", tmp_path)
    assert np.array_equal(read_outputs(tmp_path).confidences, read_outputs(prepared).confidences[:3])


def test_a_model_that_does_not_learn_stops_the_preparation(tmp_path: Path, make_competition: MakeCompetition) -> None:
    competition = make_competition(training={"learning_rate": 1e-9, "min_train_accuracy": 0.5})
    with pytest.raises(UntrainedModel, match=r"the original model reaches an accuracy of 0\.\d+ .* at least 0\.500"):
        prepare_split(competition, "public", tmp_path)


@pytest.mark.parametrize("section", ["dataset", "network"])
def test_unknown_dataset_or_network_is_the_organisers_error(tmp_path, make_competition, section):
    with pytest.raises((InvalidDataset, InvalidSplit), match="digit"):  # what else is wrong: test_file_check.py
        prepare_split(make_competition(**{section: {"name": "digit"}}), "public", tmp_path)


def test_a_network_without_an_ensemble_is_trained_in_turn(tmp_path: Path, make_competition: MakeCompetition) -> None:
    competition = make_competition(
        n_models=2, network={"name": "resnet20", "options": {}}, training={"epochs": 1, "min_train_accuracy": 0.01}
    )
    prepare_split(competition, "public", tmp_path)
    models = load_file(tmp_path / "hidden/retrained/models-00000.safetensors")
    assert models["conv1.weight"].shape == (2, 16, 1, 3, 3)


def test_training_notes_are_in_the_log_and_the_manifest(tmp_path, make_competition, monkeypatch, caplog):
    train_models = image_task.train_models

    def train(*arguments: Any, on_note: Callable[[str], None], **options: Any) -> Any:
        on_note("not captured")
        return train_models(*arguments, on_note=on_note, **options)

    monkeypatch.setattr(image_task, "train_models", train)
    manifest = prepare_split(make_competition(n_models=2), "public", tmp_path)
    assert manifest.steps["retrained-00000"].values == {"notes": ["not captured"]}
    notes = [line.getMessage() for line in caplog.records if "not captured" in line.getMessage()]
    assert [stage in note for stage, note in zip(("retrained models", "oracle"), notes, strict=True)] == [True, True]


def test_a_preparation_leaves_nothing_on_the_device(tmp_path, make_competition, monkeypatch):
    """Runs of submissions, which are other processes, come next on the same GPU."""
    kept: list[weakref.ref[SplitEvaluator]] = []
    alive_then: list[bool] = []

    def evaluator(*arguments: Any, **options: Any) -> SplitEvaluator:
        made = SplitEvaluator(*arguments, **options)
        kept.append(weakref.ref(made))
        return made

    @contextmanager
    def given_back(device: torch.device) -> Iterator[None]:
        yield
        alive_then.append(any(reference() is not None for reference in kept))

    monkeypatch.setattr(image_task, "SplitEvaluator", evaluator)
    monkeypatch.setattr(prepare, "memory_given_back", given_back)
    prepare_split(make_competition(n_models=2), "public", tmp_path)
    assert kept
    assert alive_then == [False]


def test_models_cannot_be_reproduced_without_the_seed(prepared, tmp_path, make_competition):
    prepare_split(make_competition(n_models=2, splits={"seed": 1}), "public", tmp_path)
    path = "hidden/retrained/models-00000.safetensors"
    own, other = (next(iter(load_file(folder / path).values()))[0] for folder in (prepared, tmp_path))
    assert not torch.equal(own, other)


def test_work_of_another_device_or_torch_release_is_redone(tmp_path: Path, make_competition: MakeCompetition) -> None:
    begin_split(make_competition(), "public", tmp_path, share_from_s=0)
    prepare_shard(make_competition(), "public", tmp_path, kind="retrained", shard=0)
    models = tmp_path / "hidden/retrained/models-00000.safetensors"
    assert models.exists()
    maker = tmp_path / "work/maker.txt"
    assert " cpu torch " in maker.read_text()
    maker.write_text(maker.read_text().replace(" cpu ", " cuda "))
    said: list[str] = []
    begin_split(make_competition(), "public", tmp_path, share_from_s=0, progress=lambda made: said.append(made.message))
    assert not models.exists()
    assert any("another recipe, device or torch" in message for message in said)
