"""Which images a folder holds, and of which class, person and part each is: from the folders' names or from a table.

Nothing is opened here: names and texts go in. So a server that has no libraries for images knows them too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lethe.data.errors import InvalidDataset

Level = Literal["label", "person", "test", "any"]
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
TEST_WORDS = {"1": True, "true": True, "yes": True, "test": True, "0": False, "false": False, "no": False}
TEST_WORDS |= dict.fromkeys(("train", "training", "val", "valid", "validation"), False)


@dataclass(frozen=True, eq=False)
class ImageList:
    """Images by their names. labels, persons: int64 [n]; each image its own person where persons are not known."""

    example: ClassVar[str] = "image"

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    persons: NDArray[np.int64]
    class_names: tuple[str, ...]
    knows_persons: bool = False
    is_test: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        labels: Sequence[str],
        *,
        persons: Sequence[str] | None = None,
        is_test: Sequence[bool] | None = None,
    ) -> "ImageList":
        """Return the list of these images; classes are numbered in the order of `in_order`."""
        classes = in_order(labels)
        place = {name: number for number, name in enumerate(classes)}
        return cls(
            names=tuple(names),
            labels=np.array([place[label] for label in labels], dtype=np.int64),
            persons=np.arange(len(names)) if persons is None else np.unique(list(persons), return_inverse=True)[1],
            class_names=classes,
            knows_persons=persons is not None,
            is_test=None if is_test is None else np.array(is_test, dtype=np.bool_),
        )


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the classes' names in order: of numbers, where all are."""
    names = sorted(set(labels))  # first as words: "1" and "01" are two
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return tuple(names)
    return tuple(sorted(names, key=float)) if all(map(math.isfinite, numbers)) else tuple(names)


def is_image(name: str) -> bool:
    """Return whether a file's name is an image's. Hidden files are none."""
    path = PurePosixPath(name)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def rows_of_folders(names: Iterable[str], levels: Sequence[Level]) -> list[dict[str, str]]:
    """Return path, and what its folders say, of each image in folders of this depth, sorted by path.

    levels: what the name of a folder says, from the top: ("test", "label") is train/cat/1.png.
    Raises InvalidDataset for an image that lies elsewhere, or if there is none.
    """
    images = sorted(name for name in names if is_image(name))
    if not images:
        raise InvalidDataset(f"there is no image: file names end in {', '.join(SUFFIXES)}")
    for name in images:
        if len(PurePosixPath(name).parts) != len(levels) + 1:
            path = "/".join(f"<{level}>" for level in levels)
            raise InvalidDataset(f"{name} does not lie in {path}/, as dataset.options.folders says of every image")
    return [{"path": name} | dict(zip(levels, PurePosixPath(name).parts, strict=False)) for name in images]


def list_of_rows(rows: Sequence[Mapping[str, str]], columns: Mapping[str, str | None]) -> ImageList:
    """Return the images of a table's rows. columns: path, label, person, test -> the column; None: there is none."""
    person, test = columns.get("person"), columns.get("test")
    return ImageList.of(
        [row[columns["path"] or "path"] for row in rows],
        [row[columns["label"] or "label"] for row in rows],
        persons=[row[person] for row in rows] if person else None,
        is_test=[TEST_WORDS[row[test].strip().lower()] for row in rows] if test else None,
    )
