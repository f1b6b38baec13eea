"""A set of a split on disk."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lethe.data.datasets.faces import open_faces
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.partition import cut_dataset
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
