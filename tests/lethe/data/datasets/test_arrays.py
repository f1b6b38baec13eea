import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.competition.file import Dataset
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import open_dataset
from lethe.data.errors import InvalidDataset


def load(name: str, root: Path, **options: Any) -> ImageDataset:
    return open_dataset(Dataset(name=name, options={"root": str(root), **options}))


@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 1, 6, 5), (4, 6, 5, 1)])
def test_numpy_pictures_in_any_layout(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = np.arange(120, dtype=np.uint8).reshape(shape)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", np.array([0, 1, 2, 1]))
    np.save(tmp_path / "persons.npy", np.array(["b", "a", "b", "c"]))
    np.save(tmp_path / "is_test.npy", np.array([0, 0, 0, 1]))
    dataset = load("numpy", tmp_path)
    assert dataset.images.shape == (4, 1, 6, 5)
    assert dataset.images.reshape(-1).tolist() == list(range(120))
    assert dataset.persons.tolist() == [1, 0, 1, 2]
    assert dataset.n_classes == 3
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 3, 4), np.float32), np.array([0, 1]), "images must be uint8"),
        (np.zeros((2, 3, 4), np.uint8), np.array([0, 1, 1]), "labels has 3 entries for 2 images"),
        (np.zeros((2, 3, 4), np.uint8), np.array([0.0, 1.0]), "must hold integers"),
        (np.zeros((2, 8, 8, 4), np.uint8), np.array([0, 1]), r"with C of 1 or 3, was \[2, 8, 8, 4\]"),
        (np.zeros((0, 8, 8), np.uint8), np.zeros(0, np.int64), "labels.npy is empty"),
        (np.zeros((2, 3, 4), np.uint8), np.array([0, -1]), r"labels must lie in 0\.\.0, were -1\.\.0"),
    ],
)
def test_numpy_arrays_that_do_not_fit_are_named(tmp_path, images, labels, message):
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(InvalidDataset, match=message):
        load("numpy", tmp_path)


def test_numpy_test_rows_must_be_as_many_as_the_images(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros((2, 3, 4), np.uint8))
    np.save(tmp_path / "labels.npy", np.array([0, 1]))
    np.save(tmp_path / "is_test.npy", np.array([True]))
    with pytest.raises(InvalidDataset, match="is_test has 1 entries for 2 images"):
        load("numpy", tmp_path)


def test_numpy_refuses_pickled_objects(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidDataset, match=r"images\.npy cannot be read as a NumPy file"):
        load("numpy", tmp_path)


def leaf(path: Path, users: dict[str, list[int]]) -> None:
    data = {
        "users": list(users),
        "num_samples": [len(labels) for labels in users.values()],
        "user_data": {
            user: {"x": [[label / 61] * 784 for label in labels], "y": labels} for user, labels in users.items()
        },
    }
    path.write_text(json.dumps(data))


def test_femnist_skips_empty_writers_and_refuses_invalid_pixels(tmp_path):
    leaf(tmp_path / "all_data_0.json", {"f0000_14": [], "f0001_41": [5]})
    assert len(load("femnist", tmp_path)) == 1
    leaf(tmp_path / "all_data_0.json", {"f0001_41": [62]})
    with pytest.raises(InvalidDataset, match=r"user f0001_41 has pixels outside 0\.\.1"):
        load("femnist", tmp_path)


def test_femnist_joins_leafs_files_with_the_writer_as_person(tmp_path: Path) -> None:
    leaf(tmp_path / "all_data_0.json", {"f0000_14": [0, 61], "f0001_41": [5]})
    leaf(tmp_path / "all_data_1.json", {"f0002_00": [7, 8]})
    dataset = load("femnist", tmp_path)
    assert dataset.images.shape == (5, 1, 28, 28)
    assert dataset.images[:, 0, 0, 0].tolist() == [0, 255, 21, 29, 33]
    assert dataset.labels.tolist() == [0, 61, 5, 7, 8]
    assert dataset.persons.tolist() == [0, 0, 1, 2, 2]
    assert dataset.n_classes == 62


def test_femnist_draws_the_wanted_number_the_same_way_each_time(tmp_path: Path) -> None:
    leaf(tmp_path / "all_data_0.json", {"a": list(range(30)), "b": list(range(30, 60))})
    first, again = (load("femnist", tmp_path, images=10).labels.tolist() for _ in range(2))
    assert first == again
    assert len(first) == 10


@pytest.mark.parametrize(
    "text", ["{", '{"users": ["a"]}', '{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [1]}}}']
)
def test_femnist_names_a_file_of_another_form(tmp_path: Path, text: str) -> None:
    (tmp_path / "all_data_0.json").write_text(text)
    with pytest.raises(InvalidDataset, match=r"all_data_0\.json"):
        load("femnist", tmp_path)


@pytest.mark.parametrize("name", ["numpy", "femnist"])
def test_nothing_there_says_what_belongs_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidDataset, match="Put there: "):
        load(name, tmp_path / "empty")
