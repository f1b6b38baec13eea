"""Small generated datasets in the files that their makers give out: every class, several images each."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
EACH = 5


def _labels(n_classes: int, *, each: int = EACH) -> list[int]:
    return [label for _ in range(each) for label in range(n_classes)]


def _pictures(labels: list[int], shape: tuple[int, ...]) -> Bytes:
    """Return noise around a grey that the label gives."""
    generator = np.random.default_rng(len(labels))
    greys = np.array(labels)[:, None] * 7 % 200
    noise = generator.integers(0, 50, (len(labels), int(np.prod(shape))))
    return (greys + noise).astype(np.uint8).reshape(len(labels), *shape)


def _idx(values: Bytes) -> bytes:
    return b"\0\0\x08" + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def _write_mnist(folder: str, root: Path) -> None:
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for prefix, each in (("train", 2 * EACH), ("t10k", 2)):
        labels = _labels(10, each=each)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(_idx(_pictures(labels, (28, 28))))
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(_idx(np.array(labels, np.uint8)))


def _write_batch(path: Path, shown: list[int], /, **names: list[int]) -> None:
    """Write a batch as the makers of CIFAR did: Python 2's protocol, keys as bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    batch = {b"data": _pictures(shown, (3072,)), **{name.encode(): values for name, values in names.items()}}
    path.write_bytes(pickle.dumps(batch, protocol=2))


def _write_cifar10(root: Path) -> None:
    labels = _labels(10, each=2)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        _write_batch(root / "cifar-10-batches-py" / name, labels, labels=labels)


def _write_cifar100(root: Path) -> None:
    fine = _labels(100)
    for name in ("train", "test"):
        coarse = [label // 5 for label in fine]
        _write_batch(root / "cifar-100-python" / name, fine, fine_labels=fine, coarse_labels=coarse)


def _write_femnist(root: Path) -> None:
    writers = {}
    for number in range(62):
        labels = [(EACH * number + more) % 62 for more in range(EACH)]
        pixels = _pictures(labels, (784,)) / 255
        writers[f"f{number:04d}_00"] = {"x": np.round(pixels, 2).tolist(), "y": labels}
    data = {"users": list(writers), "num_samples": [EACH] * len(writers), "user_data": writers}
    (root / "all_data_0.json").write_text(json.dumps(data))


def _paint(path: Path, label: int, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = _pictures([label] * (number + 1), (40, 40, 3))[number]
    Image.fromarray(picture).save(path, quality=90)


def _write_casia_surf(root: Path) -> None:
    lines = []
    for person in range(60):
        label = person % 10
        lines.append(f"CLKJ_AS{person:04d} {20 + 5 * label + (4 if label == 9 else 0)} M")
        for number in range(2):
            folder = root / "WBackground" / "b1" / f"CLKJ_AS{person:04d}" / "real.rssdk" / "color"
            _paint(folder / f"{number}.jpg", label, number)
    (root / "Age_Gender.txt").write_text("\n".join(lines) + "\n")


def _write_celeba(root: Path) -> None:
    names = ("Male", "Young", "Smiling")
    attributes, identities, parts = [], [], []
    labels = _labels(8, each=2 * EACH)
    for number, label in enumerate(labels, start=1):
        file = f"{number:06d}.jpg"
        bits = " ".join("1" if label >> bit & 1 else "-1" for bit in range(3))
        attributes.append(f"{file} {bits}")
        identities.append(f"{file} {number // 2}")
        parts.append(f"{file} {0 if number < len(labels) - 16 else 2}")
        _paint(root / "img_align_celeba" / file, label, 0)
    (root / "list_attr_celeba.txt").write_text(f"{len(labels)}\n{' '.join(names)}\n" + "\n".join(attributes) + "\n")
    (root / "identity_CelebA.txt").write_text("\n".join(identities) + "\n")
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")


def _write_utkface(root: Path) -> None:
    for label, age in enumerate((3, 20, 30, 50, 70)):
        for number in range(2 * EACH):
            _paint(root / "UTKFace" / f"{age}_{number % 2}_0_2017010915{number:07d}.jpg.chip.jpg", label, number)


WRITERS: dict[str, Callable[[Path], None]] = {
    "casia-surf": _write_casia_surf,
    "celeba": _write_celeba,
    "cifar10": _write_cifar10,
    "cifar20": _write_cifar100,
    "cifar100": _write_cifar100,
    "fashion-mnist": lambda root: _write_mnist("FashionMNIST", root),
    "femnist": _write_femnist,
    "mnist": lambda root: _write_mnist("MNIST", root),
    "utkface": _write_utkface,
}
