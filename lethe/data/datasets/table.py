"""Rows of a table: features as numbers in the place of pixels."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lethe.data.csv_table import parse_csv
from lethe.data.datasets.image_dataset import Adapter, ImageDataset, Options, own_person_each
from lethe.data.datasets.image_files import need, number_names
from lethe.data.errors import InvalidDataset

MAX_BYTES = 256 * 2**20  # of a file, which is read at once
MAX_FEATURES = 10_000  # columns, a column of words counting once for each word
MAX_WORDS = 1_000  # different ones in a column
NAME = r"(?i)^[A-Za-z0-9_][A-Za-z0-9_. -]*\.(csv|tsv|npz)$"

Features = NDArray[np.float32]


class TableOptions(Options):
    root: Path | None = Field(default=None, description="the folder of `file`")
    file: str | None = Field(default=None, max_length=100, pattern=NAME, description="NAME.csv or NAME.npz")
    sklearn: Literal["breast_cancer", "digits", "iris", "wine"] | None = Field(
        default=None, description="a table that comes with scikit-learn, in place of a file"
    )
    label: str = Field(default="label", description="csv: the column of the classes")
    person: str | None = Field(default=None, description="csv: a column of whom a row belongs to; default: one each")
    leave_out: tuple[str, ...] = Field(default=(), description="csv: columns that are no features")
    standardise: bool = Field(default=True, description="the network sees features of mean 0 and deviation 1")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.sklearn is None) == (self.root is None or self.file is None):
            raise ValueError("name a file (`root` and `file`) or a table of scikit-learn (`sklearn`), one of the two")
        return self


def open_table(options: Mapping[str, Any]) -> ImageDataset:
    """Return a table's rows as float32 "images" [n, features, 1, 1].

    A file is CSV with a line of names, or NumPy's .npz with `features` [n, F], `labels` (integers [n]) and perhaps
    `persons` [n]. A CSV column of words becomes a feature 0 or 1 for each word; an empty cell is refused.
    """
    parsed = TableOptions.parse(options)
    if parsed.sklearn is not None:
        features, labels, names = _of_sklearn(parsed.sklearn)
        persons = own_person_each(len(labels))
    else:
        path = need(Path(str(parsed.root)) / str(parsed.file), "a table, .csv or .npz")
        if path.stat().st_size > MAX_BYTES:
            raise InvalidDataset(f"{path} has {path.stat().st_size:,} bytes; at most {MAX_BYTES:,} are read")
        features, labels, names, persons = _of_npz(path) if path.suffix.lower() == ".npz" else _of_csv(path, parsed)
    scale, shift = _standard(features) if parsed.standardise else (1.0, 0.0)
    return ImageDataset(
        images=features[:, :, None, None],
        labels=labels,
        persons=persons,
        n_classes=max(2, len(names)),
        input_scale=scale,
        input_shift=shift,
        class_names=names if len(names) >= 2 else (),
    )


def _standard(features: Features) -> tuple[list[float], list[float]]:
    """Return scale and shift by feature; one that is the same in every row becomes 0."""
    mean, deviation = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    scale = 1 / np.where(deviation > 0, deviation, 1.0)
    return scale.tolist(), (-mean * scale).tolist()


def _of_sklearn(name: str) -> tuple[Features, NDArray[np.int64], tuple[str, ...]]:
    from sklearn import datasets  # noqa: PLC0415  half a second that other datasets need not pay

    found = getattr(datasets, f"load_{name}")()
    return found.data.astype(np.float32), found.target.astype(np.int64), tuple(map(str, found.target_names))


def _of_npz(path: Path) -> tuple[Features, NDArray[np.int64], tuple[str, ...], NDArray[np.int64]]:
    _check_unpacked(path)
    try:
        with np.load(path, allow_pickle=False) as opened:
            arrays = {name: opened[name] for name in ("features", "labels", "persons") if name in opened}
    except (OSError, ValueError, EOFError) as error:
        raise InvalidDataset(f"{path} cannot be read as .npz: {error}") from error
    for name, kinds, n_axes in (("features", "fiu", 2), ("labels", "iu", 1)):
        if name not in arrays or arrays[name].dtype.kind not in kinds or arrays[name].ndim != n_axes:
            found = f"{arrays[name].dtype} {list(arrays[name].shape)}" if name in arrays else "nothing of this name"
            raise InvalidDataset(f"{path}: `{name}` must be numbers with {n_axes} axes, found {found}")
    labels = arrays["labels"].astype(np.int64)
    persons = number_names(arrays["persons"].astype(str).tolist()) if "persons" in arrays else None
    n_classes = int(labels.max()) + 1 if len(labels) else 0
    names = tuple(map(str, range(min(n_classes, MAX_WORDS))))
    if n_classes > MAX_WORDS:
        raise InvalidDataset(f"{path}: labels name {n_classes} classes; at most {MAX_WORDS} are allowed")
    features = _checked(path, arrays["features"])
    return features, labels, names, own_person_each(len(labels)) if persons is None else persons


def _check_unpacked(path: Path) -> None:
    """Raise InvalidDataset where an archive's arrays are larger than a file may be: few bytes may become many."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidDataset(f"{path} cannot be read as .npz: {error}") from error
    if size > MAX_BYTES:
        raise InvalidDataset(f"{path} unpacks to {size:,} bytes; at most {MAX_BYTES:,} are read")


def _of_csv(
    path: Path, options: TableOptions
) -> tuple[Features, NDArray[np.int64], tuple[str, ...], NDArray[np.int64]]:
    columns = _columns(path)
    for name in (options.label, *([options.person] if options.person else []), *options.leave_out):
        if name not in columns:
            raise InvalidDataset(f"{path} has no column {name!r}; it has {', '.join(list(columns)[:30])}")
    labels = columns.pop(options.label)
    names = _sorted_words(labels)
    if len(names) > MAX_WORDS:
        raise InvalidDataset(f"{path}: column {options.label!r} has {len(names)} classes; at most {MAX_WORDS}")
    place = {name: number for number, name in enumerate(names)}
    persons = number_names(columns[options.person]) if options.person else own_person_each(len(labels))
    features = {
        name: values for name, values in columns.items() if name != options.person and name not in options.leave_out
    }
    parts = [_feature(path, name, values) for name, values in features.items()]
    if not parts:
        raise InvalidDataset(f"{path} has no column of features beside {options.label!r}")
    table = _checked(path, np.concatenate(parts, axis=1))
    return table, np.array([place[name] for name in labels], dtype=np.int64), tuple(names), persons


def _columns(path: Path) -> dict[str, list[str]]:
    """Return the cells of each column by its name. Raises InvalidDataset naming the line that does not fit."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidDataset(f"{path} cannot be read: {error}") from error
    table = parse_csv(data, source=str(path))
    for number, row in zip(table.lines, table.rows, strict=True):
        if "" in row:
            raise InvalidDataset(f"{path}, line {number} has no value in column {table.columns[row.index('')]!r}")
    return {name: table.column(name) for name in table.columns}


def _feature(path: Path, name: str, values: Sequence[str]) -> NDArray[np.float64]:
    """Return a column as features [n, 1], or for words [n, words]. Raises InvalidDataset for too many words."""
    try:
        return np.array([float(value) for value in values])[:, None]
    except ValueError:
        words = _sorted_words(values)
    if len(words) > MAX_WORDS:
        raise InvalidDataset(
            f"{path}: column {name!r} has {len(words)} different words; at most {MAX_WORDS} become features: name it "
            "in dataset.options.leave_out"
        )
    is_word: NDArray[np.bool_] = np.array(values)[:, None] == np.array(words)
    return is_word.astype(np.float64)


def _sorted_words(values: Sequence[str]) -> list[str]:
    """Return the different values: numbers by size, words by letter."""
    words = sorted(set(values))
    try:
        return sorted(words, key=float)
    except ValueError:
        return words


def _checked(path: Path, features: NDArray[Any]) -> Features:
    if features.shape[1] > MAX_FEATURES:
        raise InvalidDataset(f"{path} gives {features.shape[1]} features; at most {MAX_FEATURES} are allowed")
    with np.errstate(over="ignore"):
        found: Features = features.astype(np.float32)
    if not np.isfinite(found).all():
        row, column = np.argwhere(~np.isfinite(found))[0]
        raise InvalidDataset(
            f"{path}: row {row + 1}, feature {column + 1} is {features[row, column]}, not a finite number"
        )
    return found


ADAPTERS: dict[str, Adapter] = {"table": open_table}
