"""Which images a folder holds, and of which class, person and part each is: from the folders' names or from a table.

Nothing is opened here: names and texts go in. So a server that has no libraries for images knows them too.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lethe.data.errors import InvalidDataset
from lethe.text_files import composed, is_visible

Level = Literal["label", "person", "test", "any"]
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
TEST_WORDS = dict.fromkeys(("1", "true", "yes", "test", "tests", "testing", "eval", "evaluation", "holdout"), True)
TEST_WORDS |= dict.fromkeys(("0", "false", "no", "train", "training", "val", "valid", "validation", "dev"), False)


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
    """Return whether a file's name is an image's. What is hidden, or lies in a hidden folder, is none."""
    return PurePosixPath(name).suffix.lower() in SUFFIXES and is_visible(name)


class ImageNames:
    """The files of a folder, found by what a table written on any system calls them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._known = {_portable(name): name for name in names}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, written: str) -> str | None:
        """Return the file that is meant; None if there is none."""
        return self._known.get(_portable(written))

    def alike(self, written: str) -> tuple[str, str] | None:
        """Return an image that may be meant by a name that no file has, and what to write instead."""
        name = _portable(written)
        for known, key, advice in self._spellings:
            if found := known.get(key(name)):
                return found, advice
        return None

    def missing(self, written: str) -> str:
        """Return what to say of a name that no file has."""
        if found := self.alike(written):
            return f"does not exist; there is {found[0]!r}: {found[1]}"
        return "does not exist: put it there, or take the line out"

    @cached_property
    def _spellings(self) -> tuple[tuple[Mapping[str, str], Callable[[str], str], str], ...]:
        images = [name for name in self._known if is_image(name)]

        def by(key: Callable[[str], str]) -> Mapping[str, str]:
            return {key(name): name for name in reversed(images)}

        return (
            (by(lambda name: str(PurePosixPath(name).with_suffix(""))), str, "write its suffix, too"),
            (by(str.lower), str.lower, "write it in the same letters"),
            (by(_base), _base, "write the folder that it lies in"),
            (by(lambda name: PurePosixPath(name).stem), _base, "write its folder and its suffix"),
        )


def _base(name: str) -> str:
    return PurePosixPath(name).name


def _portable(name: str) -> str:
    parts = PurePosixPath(composed(name.strip()).replace("\\", "/")).parts
    return "/".join(part for part in parts if part != "/")


class UnknownTestValue(InvalidDataset):
    """A value that says neither test nor training."""

    def __init__(self, value: str) -> None:
        super().__init__(
            f"{value!r}, which says neither test nor training: allowed are {', '.join(TEST_WORDS)}; or name those that "
            "mean testing in dataset.options.test_values"
        )
        self.value = value


def which_are_tests(values: Sequence[str], *, test_values: Sequence[str] = ()) -> list[bool]:
    """Return which of the values mean testing: those that are named, else those that are usual words.

    Raises UnknownTestValue, or InvalidDataset for a named value that is nowhere.
    """
    if absent := [value for value in test_values if value not in values]:
        raise InvalidDataset(f"dataset.options.test_values names {absent[0]!r}, which no image has")
    if test_values:
        return [value in test_values for value in values]
    if unknown := [value for value in values if value.lower() not in TEST_WORDS]:
        raise UnknownTestValue(unknown[0])
    return [TEST_WORDS[value.lower()] for value in values]


def rows_of_folders(names: Iterable[str], levels: Sequence[Level]) -> list[dict[str, str]]:
    """Return path, and what its folders say, of each image in folders of this depth, sorted by path.

    levels: what the name of a folder says, from the top: ("test", "label") is train/cat/1.png.
    Raises InvalidDataset for an image that lies elsewhere, or if there is none.
    """
    images = sorted((composed(name), name) for name in names if is_image(name))
    if not images:
        raise InvalidDataset(f"there is no image: file names end in {', '.join(SUFFIXES)}")
    for name, _ in images:
        if len(PurePosixPath(name).parts) != len(levels) + 1:
            path = "/".join(f"<{level}>" for level in levels)
            raise InvalidDataset(f"{name} does not lie in {path}/, as dataset.options.folders says of every image")
    return [{"path": own} | dict(zip(levels, PurePosixPath(name).parts, strict=False)) for name, own in images]


def list_of_rows(
    rows: Sequence[Mapping[str, str]], columns: Mapping[str, str | None], *, test_values: Sequence[str] = ()
) -> ImageList:
    """Return the images of a table's rows. columns: path, label, person, test -> the column; None: there is none."""
    person, test = columns.get("person"), columns.get("test")
    return ImageList.of(
        [row[columns["path"] or "path"] for row in rows],
        [row[columns["label"] or "label"] for row in rows],
        persons=[row[person] for row in rows] if person else None,
        is_test=which_are_tests([row[test] for row in rows], test_values=test_values) if test else None,
    )


def notes_on_files(names: Sequence[str], images: Sequence[str], classes: Sequence[str]) -> list[str]:
    """Return what to say of a folder's files before anything is made of them.

    names: of all files that are not hidden, but for the table's. images, classes: those that are used, and of each its
    class.
    """
    used = set(images)
    unread = Counter(PurePosixPath(name).suffix.lower() or "without a suffix" for name in names if not is_image(name))
    unnamed = [name for name in names if is_image(name) and name not in used]
    notes = []
    if unread:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in unread.most_common(8))
        notes.append(f"files that are no images are not used: {kinds}; convert or unpack those that should be")
    if unnamed:
        notes.append(f"{len(unnamed)} images are in no line of the table and are not used: {unnamed[0]} first")
    places: dict[str, str] = {}
    again = [(places[base], name) for name in images if places.setdefault(base := _base(name).lower(), name) != name]
    if again:
        notes.append(
            f"{len(again)} images are called as one in another folder is, first {again[0][0]} and {again[0][1]}: each "
            "counts as an image of its own"
        )
    spelt: dict[str, str] = {}
    alike = [(spelt[name.lower()], name) for name in set(classes) if spelt.setdefault(name.lower(), name) != name]
    if alike:
        notes.append(
            f"classes {' and '.join(map(repr, sorted(alike[0])))} differ in capitals only, and are two classes"
        )
    return notes
