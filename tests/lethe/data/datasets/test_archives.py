"""Datasets in their makers' archives, NumPy files and LEAF's: what is read, and what is refused."""

import gzip
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from lethe.competition.file import Dataset
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import open_dataset
from lethe.data.errors import InvalidDataset


def load(name: str, root: Path, **options: Any) -> ImageDataset:
    return open_dataset(Dataset(name=name, options={"root": str(root), **options}))


def idx(values: np.ndarray[Any, Any]) -> bytes:
    return b"\0\0\x08" + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")])
def test_mnist_is_read_from_torchvisions_place_plain_or_zipped(tmp_path: Path, name: str, folder: str) -> None:
    raw = tmp_path / folder
    raw.mkdir(parents=True)
    images = np.arange(3 * 28 * 28, dtype=np.uint32).reshape(3, 28, 28).astype(np.uint8)
    (raw / "train-images-idx3-ubyte").write_bytes(idx(images[:2]))
    (raw / "train-labels-idx1-ubyte").write_bytes(idx(np.array([7, 9], np.uint8)))
    (raw / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images[2:])))
    (raw / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.array([1], np.uint8))))
    dataset = load(name, tmp_path)
    assert np.array_equal(dataset.images[:, 0], images)
    assert dataset.labels.tolist() == [7, 9, 1]
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False, False, True]


def test_an_idx_file_cut_short_is_named(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((2, 28, 28), np.uint8))[:-5])
    with pytest.raises(InvalidDataset, match=r"train-images-idx3-ubyte has 1563 values, its header says \[2, 28, 28\]"):
        load("mnist", tmp_path)


def cifar_pickle(path: Path, first: int, **labels: list[int]) -> None:
    """Write a batch as the makers did: Python 2's protocol, keys as bytes."""
    n = len(next(iter(labels.values())))
    data = np.full((n, 3072), first, np.uint8)
    data[:, 1024] = 77  # the first pixel's green
    batch = {b"data": data, **{name.encode(): values for name, values in labels.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(batch, protocol=2))


def test_cifar10_is_read_from_the_python_archive(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    for number in range(1, 6):
        cifar_pickle(folder / f"data_batch_{number}", number, labels=[number, 0])
    cifar_pickle(folder / "test_batch", 9, labels=[8])
    dataset = load("cifar10", tmp_path)
    assert dataset.images.shape == (11, 3, 32, 32)
    assert dataset.images[4, 0, 0, 0] == 3
    assert dataset.images[4, 1, 0, 0] == 77
    assert dataset.labels.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 8]
    assert dataset.is_test is not None
    assert dataset.is_test.sum() == 1


def test_cifar10_is_read_from_the_binary_archive(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, name in enumerate(
        ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
    ):
        (folder / f"{name}.bin").write_bytes(bytes([number]) + bytes([number + 10]) * 3072)
    dataset = load("cifar10", tmp_path)
    assert dataset.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.images[5, 2, 31, 31] == 15


def test_cifar100_and_its_coarse_labels(tmp_path: Path) -> None:
    for name in ("train", "test"):
        cifar_pickle(tmp_path / "cifar-100-python" / name, 1, fine_labels=[99, 5], coarse_labels=[19, 3])
    assert load("cifar100", tmp_path).labels.tolist() == [99, 5, 99, 5]
    assert load("cifar20", tmp_path).labels.tolist() == [19, 3, 19, 3]
    assert load("cifar20", tmp_path).n_classes == 20


def test_cifar100_binary_has_the_coarse_label_first(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / f"{name}.bin").write_bytes(bytes([4, 72]) + bytes(3072))
    assert load("cifar100", tmp_path).labels.tolist() == [72, 72]
    assert load("cifar20", tmp_path).labels.tolist() == [4, 4]


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch bomb-went-off",)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cifar-100-python" / "train"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(_Bomb(), protocol=2))
    with pytest.raises(InvalidDataset, match=r"would make a posix\.system"):
        load("cifar100", tmp_path)
    assert not (tmp_path / "bomb-went-off").exists()


def test_svhn_is_read_and_its_ten_is_a_zero(tmp_path: Path) -> None:
    for name in ("train", "test"):
        pictures = np.zeros((32, 32, 3, 2), np.uint8)
        pictures[4, 5, 1, 1] = 9
        scipy.io.savemat(tmp_path / f"{name}_32x32.mat", {"X": pictures, "y": np.array([[10], [3]], np.uint8)})
    dataset = load("svhn", tmp_path)
    assert dataset.labels.tolist() == [0, 3, 0, 3]
    assert dataset.images[1, 1, 4, 5] == 9


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


@pytest.mark.parametrize(
    "name", ["casia-surf", "celeba", "cifar10", "cifar100", "femnist", "mnist", "numpy", "svhn", "utkface"]
)
def test_nothing_there_says_what_belongs_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidDataset, match="Put there: "):
        load(name, tmp_path / "empty")
