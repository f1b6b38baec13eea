"""Sets and files of a split on disk, and its seeds."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lethe.data import files
from lethe.data.datasets.faces import open_faces
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import DamagedSplit, SplitNotPrepared
from lethe.data.files import read_json, read_tensors, write_tensors, write_text
from lethe.data.forget_sets import cut_dataset
from lethe.data.seeds import derive_seed, derive_seeds
from lethe.data.stored_sets import SET_PATHS, StoredSet, read_true_labels, write_sets, write_true_labels


@pytest.fixture(scope="module")
def faces() -> ImageDataset:
    return open_faces({"persons": 12, "images_per_person": 2, "size": 16})


def test_a_set_keeps_its_ages(faces: ImageDataset, tmp_path: Path) -> None:
    indices = np.array([1, 4, 7])
    StoredSet.cut_from(faces, indices, faces.labels).write(tmp_path / "set.safetensors")
    stored = StoredSet.read(tmp_path / "set.safetensors")
    assert stored.ages is not None
    assert stored.ages.tolist() == faces.columns["age"][indices].tolist()
    part = stored.part(1, 3).ages
    assert part is not None
    assert part.tolist() == stored.ages[1:3].tolist()


@pytest.mark.parametrize("ages", [None, np.array(["young"]), np.array([np.nan])], ids=["none", "names", "unknown"])
def test_a_set_without_ages_in_years_has_none(faces, tmp_path, ages):
    columns = {} if ages is None else {"age": np.repeat(ages, len(faces))}
    StoredSet.cut_from(replace(faces, columns=columns), np.arange(3), faces.labels).write(tmp_path / "set.safetensors")
    assert StoredSet.read(tmp_path / "set.safetensors").ages is None


def test_only_forget_images_of_a_backdoor_have_its_trigger(faces, tmp_path, make_competition):
    faces = replace(faces, labels=np.arange(len(faces)) % 2, n_classes=2)
    splits = {"train_size": None, "forget": {"by": "backdoor", "classes": [0], "fraction": 0.2}}
    cut = cut_dataset(faces, make_competition(splits=splits), "public")
    write_sets(tmp_path, faces, cut)
    write_true_labels(tmp_path, faces, cut)
    for name, indices in cut.sets():
        expected = faces.images[indices].copy()
        if name == "forget":
            expected[:, :, -2:, -2:] = 255
        assert np.array_equal(StoredSet.read(tmp_path / SET_PATHS[name]).images.numpy(), expected), name
    true_labels = read_true_labels(tmp_path)
    assert true_labels is not None
    assert 0 not in true_labels
    assert set(StoredSet.read(tmp_path / SET_PATHS["forget"]).labels.tolist()) == {0}


def test_tied_tensors_are_written_as_two(tmp_path: Path) -> None:
    tied = torch.arange(4.0)
    write_tensors(tmp_path / "x.safetensors", {"a": tied, "b": tied, "c": tied[:2]})
    read = load_file(tmp_path / "x.safetensors")
    assert read["a"].tolist() == read["b"].tolist() == [0, 1, 2, 3]
    assert read["c"].tolist() == [0, 1]


def test_a_write_cut_off_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.zeros(3)})

    def half_a_file(_tensors: object, part: Path, **_: object) -> None:
        part.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(files, "save_file", half_a_file)
    with pytest.raises(OSError, match="no space"):
        write_tensors(path, {"a": torch.ones(3)})
    assert read_tensors(path)["a"].tolist() == [0, 0, 0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SplitNotPrepared, match=r"x\.safetensors does not exist"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(SplitNotPrepared, match=r"x\.json does not exist"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(DamagedSplit, match=r"x\.safetensors is damaged"):
        read_tensors(tmp_path / "x.safetensors")


def test_damaged_json_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "x.json", "{")
    with pytest.raises(DamagedSplit, match=r"x\.json is damaged"):
        read_json(tmp_path / "x.json")


def test_seed_is_the_documented_hash() -> None:
    digest = hashlib.sha256(b"digits/public/retrained/3").digest()
    assert derive_seed("digits", "public", "retrained", 3) == int.from_bytes(digest[:8], "big") >> 1


def test_seeds_differ_by_every_word_and_index() -> None:
    seeds = {
        derive_seed(slug, visibility, role, index)
        for slug in ("a", "b")
        for visibility in ("public", "private")
        for role in ("retrained", "oracle")
        for index in range(50)
    }
    assert len(seeds) == 400
    assert max(seeds) < 2**63


def test_model_seed_does_not_depend_on_the_number_of_models() -> None:
    assert derive_seeds("a", indices=range(3, 5)) == derive_seeds("a", indices=range(6))[3:5]
