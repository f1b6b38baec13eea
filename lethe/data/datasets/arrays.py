"""Images that are already arrays: NumPy files, and LEAF's FEMNIST."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lethe.data.datasets.image_dataset import Adapter, ImageDataset, Options, own_person_each
from lethe.data.datasets.image_files import need, number_names
from lethe.data.errors import InvalidDataset
from lethe.data.forget_sets import DIFFICULTY
from lethe.text_files import read_text, visible_files

MAX_PERSON_BYTES = 1024  # bytes; NumPy takes four for a character
MAX_IMAGES = 10_000_000  # labels and persons are held in memory


class NumpyOptions(Options):
    root: Path
    n_classes: int | None = Field(default=None, ge=2, description="default: the largest label + 1")
    input_scale: float | list[float] = 1 / 255
    input_shift: float | list[float] = 0.0


def open_numpy(options: Mapping[str, Any]) -> ImageDataset:
    """Return images from NumPy files, memory-mapped.

    Put there: root/images.npy (uint8 [n, H, W], [n, C, H, W] or [n, H, W, C] with C of 1 or 3), root/labels.npy
    (integers [n]), and if known root/persons.npy (integers or text [n]), root/is_test.npy (booleans [n]) and
    root/difficulty.npy (numbers [n], for forget sets by difficulty).
    """
    parsed = NumpyOptions.parse(options)
    images = _load(parsed.root / "images.npy", "uint8 images [n, H, W], [n, C, H, W] or [n, H, W, C]")
    labels = _load(parsed.root / "labels.npy", "integer labels [n]")
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise InvalidDataset(f"labels.npy must hold integers [n], holds {labels.dtype} {list(labels.shape)}")
    if len(labels) == 0:
        raise InvalidDataset("labels.npy is empty")
    if len(images) != len(labels):
        raise InvalidDataset(f"labels has {len(labels)} entries for {len(images)} images")
    if len(labels) > MAX_IMAGES:
        raise InvalidDataset(f"labels.npy has {len(labels)} labels; at most {MAX_IMAGES} are read")
    persons_path, test_path = parsed.root / "persons.npy", parsed.root / "is_test.npy"
    difficulty_path = parsed.root / f"{DIFFICULTY}.npy"
    return ImageDataset(
        images=channels_first(images),
        labels=np.asarray(labels, dtype=np.int64),
        persons=(
            number_names(_persons(persons_path, len(labels))) if persons_path.exists() else own_person_each(len(images))
        ),
        n_classes=parsed.n_classes or int(labels.max()) + 1,
        input_scale=parsed.input_scale,
        input_shift=parsed.input_shift,
        is_test=_load(test_path, "booleans [n]").astype(bool) if test_path.exists() else None,
        columns={DIFFICULTY: _load(difficulty_path, "numbers [n]")} if difficulty_path.exists() else {},
    )


def channels_first(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a view [n, C, H, W] of grey, channels-first or channels-last images."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        return images.transpose(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InvalidDataset(
            f"images.npy must be [n, H, W], [n, C, H, W] or [n, H, W, C] with C of 1 or 3, was {list(images.shape)}"
        )
    return images


def _persons(path: Path, n_images: int) -> list[str]:
    persons = _load(path, "person of each picture")
    if persons.shape != (n_images,) or persons.dtype.itemsize > MAX_PERSON_BYTES:
        allowed = f"[{n_images}] integers, or texts of at most {MAX_PERSON_BYTES // 4} characters"
        raise InvalidDataset(f"persons.npy must hold {allowed}, holds {persons.dtype} {list(persons.shape)}")
    names: list[str] = persons.astype(str).tolist()
    return names


def _load(path: Path, what: str) -> NDArray[Any]:
    try:
        loaded: NDArray[Any] = np.load(need(path, what), mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise InvalidDataset(f"{path} cannot be read as a NumPy file: {error}") from error
    return loaded


class FemnistOptions(Options):
    root: Path
    images: int | None = Field(default=30_400, ge=1, description="images drawn at random; default: all")
    seed: int = Field(default=0, ge=0)


def open_femnist(options: Mapping[str, Any]) -> ImageDataset:
    """Return FEMNIST's 62 classes with the writer as person. Put there: LEAF's JSON files, root/*.json.

    Each holds {"users": [...], "num_samples": [...], "user_data": {user: {"x": [[784 floats], ...], "y": [...]}}}.
    30,400 of the images are drawn, as in Triantafillou et al. 2024, section A.6.
    """
    parsed = FemnistOptions.parse(options)
    paths = [
        path
        for path in visible_files(need(parsed.root, "LEAF's all_data_*.json of FEMNIST"))
        if path.parent == parsed.root and path.suffix.lower() == ".json"
    ]
    if not paths:
        raise InvalidDataset(f"{parsed.root} has no *.json. Put there: LEAF's all_data_*.json of FEMNIST")
    images: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    writers: list[str] = []
    for path in paths:
        for user, pixels, classes in _leaf_users(path):
            images.append(pixels)
            labels.append(classes)
            writers += [user] * len(classes)
    all_images, all_labels, persons = np.concatenate(images), np.concatenate(labels), number_names(writers)
    if parsed.images is not None and parsed.images < len(all_labels):
        drawn = np.random.default_rng(parsed.seed).permutation(len(all_labels))[: parsed.images]
        drawn.sort()
        all_images, all_labels, persons = all_images[drawn], all_labels[drawn], persons[drawn]
    return ImageDataset(images=all_images, labels=all_labels, persons=persons, n_classes=62, input_scale=1 / 255)


def _leaf_users(path: Path) -> list[tuple[str, NDArray[np.uint8], NDArray[np.int64]]]:
    try:
        data = json.loads(read_text(path))
        named = [(user, data["user_data"][user]) for user in data["users"]]
        users = [(user, d) for user, d in named if len(d["y"])]  # a writer without a sample in this part
        arrays = [(user, np.asarray(d["x"], dtype=np.float32), np.asarray(d["y"], dtype=np.int64)) for user, d in users]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidDataset(f"{path} is not LEAF's JSON (users, user_data, x, y): {error!r}") from error
    for user, pixels, classes in arrays:
        if pixels.shape != (len(classes), 784):
            raise InvalidDataset(f"{path}: user {user} has pixels {list(pixels.shape)}, must be [{len(classes)}, 784]")
        if not (pixels.min() >= 0 and pixels.max() <= 1):  # a comparison that is false for NaN too
            raise InvalidDataset(f"{path}: user {user} has pixels outside 0..1")
    return [(user, _bytes(pixels), classes) for user, pixels, classes in arrays]


def _bytes(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.rint(pixels.reshape(-1, 1, 28, 28) * 255).clip(0, 255).astype(np.uint8)


ADAPTERS: dict[str, Adapter] = {"femnist": open_femnist, "numpy": open_numpy}
