"""What an organiser should look at before opening a competition: counts, overlaps, near-duplicates."""

import hashlib
from dataclasses import dataclass
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import SharedBySets, SplitReport
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.forget_sets import Cut, Indices

PAIR_COLUMNS = ["sets", "same image", "same person", "exact duplicates", "near-duplicates", "most similar (ids)"]
SIDE = 8  # an image is compared as SIDE x SIDE grey means
SIMILAR = 0.995  # correlation of two such thumbnails from which on they count as near-duplicates
BLOCK = 2048
SHOWN = 20
Thumbnails = NDArray[np.float32]


def make_split_report(
    dataset: ImageDataset, competition: CompetitionFile, cut: Cut, visibility: Visibility
) -> SplitReport:
    """Return the report of one split."""
    sets = dict(cut.sets())
    return SplitReport(
        competition=competition.slug,
        visibility=visibility,
        images={name: len(indices) for name, indices in sets.items()},
        persons={name: len(np.unique(dataset.persons[indices])) for name, indices in sets.items()},
        classes={name: _class_counts(dataset, cut, indices) for name, indices in sets.items()},
        class_names=_class_names(dataset),
        confused_labels=int((cut.labels != dataset.labels).sum()),
        pairs=[_pair(dataset, sets, left, right) for left, right in combinations(sets, 2)],
    )


def _class_names(dataset: ImageDataset) -> list[str]:
    return list(dataset.class_names or (str(label) for label in range(dataset.n_classes)))


def _class_counts(dataset: ImageDataset, cut: Cut, indices: Indices) -> dict[str, int]:
    counts = np.bincount(cut.labels[indices], minlength=dataset.n_classes).tolist()
    return dict(zip(_class_names(dataset), counts, strict=True))


def _pair(dataset: ImageDataset, sets: dict[str, Indices], left: str, right: str) -> SharedBySets:
    a, b = sets[left], sets[right]
    found = duplicates_between(dataset, a, b)
    return SharedBySets(
        sets=(left, right),
        shared_images=len(np.intersect1d(a, b)),
        shared_persons=len(np.intersect1d(dataset.persons[a], dataset.persons[b])),
        exact_duplicates=found.exact,
        near_duplicates=found.near,
        examples=list(found.examples),
    )


def report_page(report: SplitReport) -> str:
    """Return the report as one HTML page that needs nothing else."""
    title = f"{report.competition}: {report.visibility} split"
    sets = list(report.images)
    sizes = [[name, report.images[name], report.persons[name]] for name in sets]
    classes = [[label, *(report.classes[name][label] for name in sets)] for label in report.class_names]
    return _PAGE.format(
        title=escape(title),
        sizes=_table(["set", "images", "persons"], sizes),
        classes=_table(["class", *sets], classes),
        pairs=_table(PAIR_COLUMNS, [_pair_row(pair) for pair in report.pairs]),
    )


def _pair_row(pair: SharedBySets) -> list[Any]:
    similar = ", ".join(f"{left} ~ {right}" for left, right, _ in pair.examples[:5])
    counts = pair.shared_images, pair.shared_persons, pair.exact_duplicates, pair.near_duplicates
    return [" / ".join(pair.sets), *counts, similar]


def _table(head: list[str], rows: list[list[Any]]) -> str:
    first = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ padding: .25rem .75rem; border-bottom: 1px solid #ccc; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
</style></head><body><h1>{title}</h1>
<h2>Sets</h2>{sizes}
<h2>Images of each class</h2>{classes}
<h2>What sets share</h2>
<p>Near-duplicates are images whose grey 8x8 thumbnails correlate at 0.995 or more. None may be shared between retain
and forget, or between hidden test and the rest, if the score is to mean what it says.</p>{pairs}
</body></html>
"""


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
