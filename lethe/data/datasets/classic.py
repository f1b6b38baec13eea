"""MNIST, FashionMNIST, CIFAR-10, CIFAR-100, CIFAR-20 and SVHN from their makers' files; scikit-learn's digits.

Python's own pickle can run code, so CIFAR's pickles are read by a reader that makes nothing but arrays, lists and text.
"""

import gzip
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray
from pydantic import Field

from lethe.data.datasets.image_dataset import Adapter, ImageDataset, Options, own_person_each
from lethe.data.datasets.image_files import need
from lethe.data.errors import InvalidDataset
from lethe.data.seeds import numpy_generator

LOWEST, HIGHEST = -5.0, 6.0  # standardised pixels plus noise; what lies beyond is clipped


class DigitsOptions(Options):
    noise: float = Field(default=0.0, ge=0, description="standard deviation of the added noise, in pixel deviations")
    seed: int = Field(default=0, ge=0)


def open_digits(options: Mapping[str, Any]) -> ImageDataset:
    """Return the digits: standardised over all pixels, noise added, stored in 256 steps."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - half a second that other datasets need not pay

    parsed = DigitsOptions.parse(options)
    digits = load_digits()
    pixels = digits.images.astype(np.float64)
    pixels = (pixels - pixels.mean()) / pixels.std()
    pixels += parsed.noise * numpy_generator(parsed.seed).standard_normal(pixels.shape)
    scale = (HIGHEST - LOWEST) / 255
    images = np.clip(np.rint((pixels - LOWEST) / scale), 0, 255).astype(np.uint8)
    return ImageDataset(
        images=images[:, None],
        labels=digits.target.astype(np.int64),
        persons=own_person_each(len(images)),
        n_classes=10,
        input_scale=scale,
        input_shift=LOWEST,
        class_names=tuple(str(digit) for digit in range(10)),
    )


# mean and standard deviation of each channel's training pixels, in 0..1, as the field uses them
CIFAR10_PIXELS = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100_PIXELS = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
SVHN_PIXELS = ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
MNIST_PIXELS = ((0.1307,), (0.3081,))
FASHION_PIXELS = ((0.2860,), (0.3530,))

Pixels = tuple[tuple[float, ...], tuple[float, ...]]


class ClassicOptions(Options):
    root: Path


def _joined(
    train: tuple[NDArray[np.uint8], NDArray[np.int64]],
    test: tuple[NDArray[np.uint8], NDArray[np.int64]],
    *,
    n_classes: int,
    pixels: Pixels,
) -> ImageDataset:
    """Return both parts as one dataset whose makers' test set stays the test set; inputs are standardised."""
    images = np.concatenate([train[0], test[0]])
    means, deviations = pixels
    return ImageDataset(
        images=images,
        labels=np.concatenate([train[1], test[1]]),
        persons=own_person_each(len(images)),
        n_classes=n_classes,
        input_scale=[1 / (255 * deviation) for deviation in deviations],
        input_shift=[-mean / deviation for mean, deviation in zip(means, deviations, strict=True)],
        is_test=np.arange(len(images)) >= len(train[0]),
    )


def mnist_adapter(folder: str, pixels: Pixels) -> Adapter:
    """Return the adapter of MNIST or FashionMNIST.

    Put there: root/<folder>/raw/ (torchvision's place) or root/ with train-images-idx3-ubyte, train-labels-idx1-ubyte,
    t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, plain or .gz.
    """

    def open_mnist(options: Mapping[str, Any]) -> ImageDataset:
        root = ClassicOptions.parse(options).root
        raw = root / folder / "raw"
        place = raw if raw.exists() else root

        def part(name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
            images = read_idx(place / f"{name}-images-idx3-ubyte")
            labels = read_idx(place / f"{name}-labels-idx1-ubyte")
            return images[:, None], labels.astype(np.int64)

        return _joined(part("train"), part("t10k"), n_classes=10, pixels=pixels)

    return open_mnist


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the bytes array of an IDX file, plain or with .gz added to its name."""
    zipped = path.with_name(path.name + ".gz")
    if path.exists():
        data = path.read_bytes()
    else:
        data = gzip.decompress(need(zipped, f"{path.name} or {zipped.name}").read_bytes())
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise InvalidDataset(f"{path} is not an IDX file of bytes: it starts with {data[:4].hex()}")
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if values.size != int(np.prod(shape)):
        raise InvalidDataset(f"{path} has {values.size} values, its header says {list(shape)}")
    return values.reshape(shape)


def open_cifar10(options: Mapping[str, Any]) -> ImageDataset:
    """Return CIFAR-10. Put there: root/cifar-10-batches-py (or -bin), unpacked from the makers' archive."""
    root = ClassicOptions.parse(options).root
    names = [f"data_batch_{number}" for number in range(1, 6)]
    if (root / "cifar-10-batches-bin").exists():
        folder = root / "cifar-10-batches-bin"
        parts = [_read_cifar_binary(folder / f"{name}.bin", label_bytes=1) for name in (*names, "test_batch")]
    else:
        folder = need(root / "cifar-10-batches-py", "CIFAR-10's unpacked archive (data_batch_1 ... test_batch)")
        parts = [_read_cifar_pickle(folder / name, "labels") for name in (*names, "test_batch")]
    images, labels = [part[0] for part in parts], [part[1] for part in parts]
    return _joined(
        (np.concatenate(images[:5]), np.concatenate(labels[:5])),
        (images[5], labels[5]),
        n_classes=10,
        pixels=CIFAR10_PIXELS,
    )


def cifar100_adapter(*, coarse: bool) -> Adapter:
    """Return the adapter of CIFAR-100, or with coarse labels CIFAR-20.

    Put there: root/cifar-100-python (or cifar-100-binary), unpacked from the makers' archive.
    """

    def open_cifar100(options: Mapping[str, Any]) -> ImageDataset:
        root = ClassicOptions.parse(options).root
        if (root / "cifar-100-binary").exists():
            folder, column = root / "cifar-100-binary", 0 if coarse else 1
            train, test = (
                _read_cifar_binary(folder / f"{name}.bin", label_bytes=2, column=column) for name in ("train", "test")
            )
        else:
            folder = need(root / "cifar-100-python", "CIFAR-100's unpacked archive (train, test)")
            key = "coarse_labels" if coarse else "fine_labels"
            train, test = (_read_cifar_pickle(folder / name, key) for name in ("train", "test"))
        return _joined(train, test, n_classes=20 if coarse else 100, pixels=CIFAR100_PIXELS)

    return open_cifar100


def _read_cifar_binary(path: Path, *, label_bytes: int, column: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images and labels of a binary batch: rows of label bytes, then 3 x 32 x 32 bytes."""
    data = np.fromfile(need(path, "a binary batch of CIFAR"), np.uint8)
    row = label_bytes + 3072
    if data.size == 0 or data.size % row:
        raise InvalidDataset(f"{path} has {data.size} bytes, which is not a multiple of {row}")
    rows = data.reshape(-1, row)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, column].astype(np.int64)


class _ArraysOnly(pickle.Unpickler):
    """Makes NumPy arrays, and no other object."""

    ALLOWED = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.numeric", "_frombuffer"),
            ("numpy.core.numeric", "_frombuffer"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it would make a {module_name}.{global_name}")
        return super().find_class(module_name.replace("numpy.core", "numpy._core"), global_name)


def _read_cifar_pickle(path: Path, label_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        with need(path, "a batch of CIFAR").open("rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
        data, labels = np.asarray(batch[b"data"]), batch[label_key.encode()]
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidDataset(f"{path} is not a batch of CIFAR: {error!r}") from error
    if data.dtype != np.uint8 or data.shape != (len(labels), 3072):
        raise InvalidDataset(f"{path} holds {data.dtype} {list(data.shape)}, must be uint8 [{len(labels)}, 3072]")
    return data.reshape(-1, 3, 32, 32), np.asarray(labels, dtype=np.int64)


def open_svhn(options: Mapping[str, Any]) -> ImageDataset:
    """Return SVHN's cropped digits. Put there: root/train_32x32.mat and root/test_32x32.mat."""
    root = ClassicOptions.parse(options).root
    train, test = (_read_svhn(root / f"{name}_32x32.mat") for name in ("train", "test"))
    return _joined(train, test, n_classes=10, pixels=SVHN_PIXELS)


def _read_svhn(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        content = scipy.io.loadmat(need(path, "SVHN's cropped digits (format 2)"))
        pictures, labels = content["X"], content["y"].ravel()
    except (ValueError, KeyError, TypeError, NotImplementedError) as error:
        raise InvalidDataset(f"{path} is not SVHN's file with X and y: {error!r}") from error
    if pictures.ndim != 4 or pictures.shape[:3] != (32, 32, 3):
        raise InvalidDataset(f"{path}: X is {list(pictures.shape)}, must be [32, 32, 3, n]")
    # the makers write the digit 0 as 10
    return np.ascontiguousarray(pictures.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10


ADAPTERS: dict[str, Adapter] = {
    "cifar10": open_cifar10,
    "cifar20": cifar100_adapter(coarse=True),
    "cifar100": cifar100_adapter(coarse=False),
    "digits": open_digits,
    "fashion-mnist": mnist_adapter("FashionMNIST", FASHION_PIXELS),
    "mnist": mnist_adapter("MNIST", MNIST_PIXELS),
    "svhn": open_svhn,
}
