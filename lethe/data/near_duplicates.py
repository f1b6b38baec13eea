"""Images that occur in two sets, exactly or nearly: they make a hidden set less hidden."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.partition import Indices

SIDE = 8  # an image is compared as SIDE x SIDE grey means
SIMILAR = 0.995  # correlation of two such thumbnails from which on they count as near-duplicates
BLOCK = 2048
SHOWN = 20

Thumbnails = NDArray[np.float32]


@dataclass(frozen=True)
class Duplicates:
    """Pairs of images from two sets. `examples` are (id, id, correlation) of the most similar ones."""

    exact: int
    near: int
    examples: tuple[tuple[int, int, float], ...]


def duplicates_between(dataset: ImageDataset, left: Indices, right: Indices) -> Duplicates:
    """Return how many images of `right` have an exact or near duplicate in `left`.

    Thumbnails of flat images have no correlation and are compared byte for byte only.
    """
    hashes = {_hash(dataset, i) for i in left}
    exact = sum(_hash(dataset, i) in hashes for i in right)
    a, b = thumbnails(dataset, left), thumbnails(dataset, right)
    best_value = np.full(len(right), -1.0, np.float32)
    best_index = np.zeros(len(right), np.int64)
    for start in range(0, len(left), BLOCK):
        similarity = b @ a[start : start + BLOCK].T
        place = similarity.argmax(axis=1)
        value = similarity[np.arange(len(right)), place]
        better = value > best_value
        best_value[better], best_index[better] = value[better], place[better] + start
    near = np.flatnonzero(best_value >= SIMILAR)
    order = near[np.argsort(-best_value[near], kind="stable")][:SHOWN]
    examples = tuple((int(left[best_index[i]]), int(right[i]), round(float(best_value[i]), 4)) for i in order)
    return Duplicates(exact=exact, near=len(near), examples=examples)


def thumbnails(dataset: ImageDataset, indices: Indices) -> Thumbnails:
    """Return each image as a grey thumbnail of mean 0 and length 1, float32 [n, side * side]; 0 where it is flat."""
    parts = [_thumbnail_block(dataset.images[indices[i : i + BLOCK]]) for i in range(0, len(indices), BLOCK)]
    return np.concatenate(parts)


def _thumbnail_block(images: NDArray[Any]) -> Thumbnails:
    grey = images.mean(axis=1, dtype=np.float32)
    rows, columns = (np.linspace(0, size, min(SIDE, size) + 1).astype(int)[:-1] for size in grey.shape[1:])
    small = np.add.reduceat(np.add.reduceat(grey, rows, axis=1), columns, axis=2).reshape(len(grey), -1)
    small -= small.mean(axis=1, keepdims=True)
    length = np.linalg.norm(small, axis=1, keepdims=True)
    thumbnail: Thumbnails = np.divide(small, length, out=np.zeros_like(small), where=length > 1e-3)
    return thumbnail


def _hash(dataset: ImageDataset, index: Any) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(dataset.images[index]).tobytes(), digest_size=16).digest()
