"""What each level of an organiser's folders says of an image: class, person, whether for testing."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import get_args

from lethe.data.datasets.image_list import TEST_WORDS, Level
from lethe.data.errors import InvalidDataset

TEST_FOLDERS = frozenset(word for word in TEST_WORDS if word.isalpha() and len(word) > 2) - {"yes", "false", "true"}
HELP = (
    "Put images into a folder for each class (cat/1.png), or for each class and person (cat/ann/1.png); or add a CSV "
    "with a column of paths and one of classes; or name files of questions *.jsonl, or a CSV whose rows are the data"
)


def chosen_levels(folders: Sequence[str]) -> list[Level]:
    allowed = get_args(Level)
    if folders.count("label") != 1 or any(level not in allowed for level in folders):
        raise InvalidDataset(
            f"folders must name label once, and of {', '.join(allowed)} only; had {', '.join(folders)}"
        )
    return list(folders)  # type: ignore[arg-type]  # each was looked at


def guessed_levels(names: Sequence[str], test_values: Sequence[str]) -> list[Level]:
    depths = Counter(len(PurePosixPath(name).parts) - 1 for name in names)
    depth = depths.most_common(1)[0][0]
    if len(depths) > 1:
        odd = next(name for name in names if len(PurePosixPath(name).parts) - 1 != depth)
        raise InvalidDataset(f"most images lie {depth} folders deep, but {odd} does not. {HELP}")
    return _levels([PurePosixPath(name).parts[:-1] for name in names], test_values)


def _levels(folders: Sequence[tuple[str, ...]], test_values: Sequence[str]) -> list[Level]:
    """Return what each level of folders says: whether for testing, the class, the person."""
    levels: list[Level] = []
    for place in range(len(folders[0])):
        values = {parts[place] for parts in folders}
        if len(values) == 1:
            levels.append("any")
        elif "test" not in levels and _says_test(values, test_values):
            levels.append("test")
        elif "label" not in levels:
            levels.append("label")
        else:
            levels.append("any" if "person" in levels else "person")
    if "label" not in levels:
        raise InvalidDataset(f"all images lie in one folder, so their classes are not known. {HELP}")
    return levels


def _says_test(values: set[str], test_values: Sequence[str]) -> bool:
    """Return whether folders' names tell test from training. Raises InvalidDataset where only some do."""
    if test_values:
        return values >= set(test_values)
    known = {value for value in values if value.lower() in TEST_FOLDERS}
    if {TEST_WORDS[value.lower()] for value in known} == {True, False} and known != values:
        odd = min(values - known)
        raise InvalidDataset(
            f"of the folders {', '.join(sorted(values)[:9])} some tell test from training, but {odd!r} does not: take "
            "it away, or name those for testing as `test_values`"
        )
    return known == values
