import gzip
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


def load(name: str, root: Path) -> ImageDataset:
    return open_dataset(Dataset(name=name, options={"root": str(root)}))


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


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "svhn"])
def test_nothing_there_says_what_belongs_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidDataset, match="Put there: "):
        load(name, tmp_path)
