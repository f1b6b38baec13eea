"""A folder of images with a table that names them; and the layout of the 2023 competition on Kaggle."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lethe.data.csv_table import parse_csv
from lethe.data.datasets.image_dataset import Adapter, ImageDataset, own_person_each
from lethe.data.datasets.image_files import PictureOptions, decode_pictures, need, number_names
from lethe.data.datasets.image_list import (
    ImageNames,
    Level,
    UnknownTestValue,
    in_order,
    notes_on_files,
    rows_of_folders,
    which_are_tests,
)
from lethe.data.errors import InvalidDataset
from lethe.text_files import visible_files


class FolderOptions(PictureOptions):
    """`table` is a CSV below `root`, one row an image. Labels may be numbers or words; persons are text."""

    folders: tuple[Level, ...] = Field(
        default=(),
        max_length=8,
        description='what folders\' names say, in place of a table: ["label"] is cat/1.png; also person, test, any',
    )
    table: str = Field(default="images.csv", pattern=r"(?i)\.(csv|tsv)$", description="a CSV below root")
    path_column: str = "path"
    label_column: str = "label"
    person_column: str | None = None
    test_column: str | None = None
    test_values: tuple[str, ...] = Field(
        default=(), description="which values of it mean testing; default: usual words"
    )
    extra_columns: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_classes(self) -> Self:
        if self.folders and self.folders.count("label") != 1:
            raise ValueError(f'folders must name "label" once, had {list(self.folders)}')
        if twice := [level for level in ("person", "test") if self.folders.count(level) > 1]:
            raise ValueError(f"folders has {twice[0]!r} twice")
        return self


def open_folder(options: Mapping[str, Any]) -> ImageDataset:
    """Return the images that the table names. Put there: root/<table> and the images at the paths it holds.

    With `folders`, there is no table: the names of the folders say class, person and whether an image is for testing.
    """
    parsed = FolderOptions.parse(options)
    names = [
        path.relative_to(parsed.root).as_posix() for path in visible_files(need(parsed.root, "a folder of images"))
    ]
    if parsed.folders:
        parsed, table = _folders_as_table(parsed, names)
        table_path = parsed.root
    else:
        wanted_table = f'a CSV with columns {parsed.path_column}, {parsed.label_column}; or say folders = ["label"]'
        table_path = need(parsed.root / parsed.table, wanted_table)
        table = _read_table(table_path)
    wanted = [parsed.path_column, parsed.label_column, parsed.person_column, parsed.test_column, *parsed.extra_columns]
    _check_columns(table, table_path, [name for name in wanted if name])
    _check_once(table[parsed.path_column], table_path)
    known = ImageNames(names)
    paths = [_inside(parsed.root, name, table_path, known) for name in table[parsed.path_column]]
    classes, labels = _classes(table[parsed.label_column])
    decoded = decode_pictures(paths, parsed)
    used = [path.relative_to(parsed.root).as_posix() for path in paths]
    others = [name for name in names if parsed.root / name != table_path]
    return ImageDataset(
        images=decoded.images,
        labels=labels,
        persons=(
            number_names(table[parsed.person_column].tolist()) if parsed.person_column else own_person_each(len(paths))
        ),
        n_classes=len(classes),
        input_scale=1 / 255,
        class_names=classes,
        is_test=_is_test(table, parsed, table_path) if parsed.test_column else None,
        columns={name: _values(table[name]) for name in parsed.extra_columns},
        notes=(*notes_on_files(others, used, table[parsed.label_column].tolist()), *decoded.notes),
    )


def _folders_as_table(options: FolderOptions, names: Sequence[str]) -> tuple[FolderOptions, pd.DataFrame]:
    """Return what folders say as a table, and the options that name its columns."""
    table = pd.DataFrame(rows_of_folders(names, options.folders), dtype=str)
    columns: dict[str, Any] = {"path_column": "path", "label_column": "label", "extra_columns": ()}
    columns |= {f"{level}_column": level if level in options.folders else None for level in ("person", "test")}
    return options.model_copy(update=columns), table


def open_kaggle(options: Mapping[str, Any]) -> ImageDataset:
    """Return all images of the competition's layout; retain and forget sets are drawn again.

    Put there: root/retain.csv, forget.csv, validation.csv (image_id, age_group, age, person_id) and
    root/images/a/b.png for the image_id a-b. The network sees 0..255, as it did there.
    """
    parsed = PictureOptions.parse(options)
    tables = []
    for name in ("retain", "forget", "validation"):
        path = need(parsed.root / f"{name}.csv", "the competition's table with image_id, age_group, age, person_id")
        table = _read_table(path)
        _check_columns(table, path, ["image_id", "age_group", "age", "person_id"])
        tables.append(table.assign(**{name: _numbers(table[name], path) for name in ("age_group", "age")}))
    rows = pd.concat(tables, ignore_index=True)
    _check_once(rows["image_id"], parsed.root)
    paths = [_kaggle_path(parsed.root, image_id) for image_id in rows["image_id"]]
    labels = rows["age_group"].to_numpy(dtype=np.int64)
    return ImageDataset(
        images=decode_pictures(paths, parsed).images,
        labels=labels,
        persons=number_names(rows["person_id"].tolist()),
        n_classes=max(10, int(labels.max()) + 1),
        columns={"age": rows["age"].to_numpy()},
    )


def _kaggle_path(root: Path, image_id: str) -> Path:
    folder, separator, number = image_id.partition("-")
    if not separator or not folder.isalnum() or not number.isalnum():
        raise InvalidDataset(f"image_id must have the form a-b, was {image_id!r}")
    return need(root / "images" / folder / f"{number}.png", f"the picture of image_id {image_id}")


def _read_table(path: Path) -> pd.DataFrame:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidDataset(f"{path} cannot be read: {error}") from error
    table = parse_csv(data, source=str(path))  # as text: "007" is not "7", and a class may be called NA
    return pd.DataFrame(table.rows, columns=table.columns, index=table.lines, dtype=str)


def _check_columns(table: pd.DataFrame, path: Path, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.columns:
            raise InvalidDataset(f"{path} has no column {name!r}: it has {_shown(table)}")
        empty = table[name] == ""
        if empty.any():
            raise InvalidDataset(f"{path}, line {empty.idxmax()}: column {name!r} is empty")


def _shown(table: pd.DataFrame) -> str:
    """Return the names of a table's columns, but not a complete line of something that is not a table."""
    names = [str(name) for name in table.columns]
    return ", ".join(name if name.isidentifier() and len(name) <= 40 else "…" for name in names[:20])


def _inside(root: Path, name: str, table_path: Path, known: ImageNames) -> Path:
    path = root / (known.find(name) or name)
    if not path.resolve().is_relative_to(root.resolve()):
        raise InvalidDataset(f"{table_path} names {name!r}, which lies outside {root}")
    if not path.exists():
        raise InvalidDataset(f"{table_path} names {name!r}, which {known.missing(name)}")
    return path


def _check_once(column: "pd.Series[str]", path: Path) -> None:
    """An image that occurs twice would be in two sets."""
    again = column[column.duplicated()]
    if len(again):
        raise InvalidDataset(f"{path}: {column.name} {again.iloc[0]!r} occurs twice, as do {len(again)} in all")


def _classes(column: "pd.Series[str]") -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the classes' names in order (of numbers, where all are) and each row's class."""
    names = in_order(column)
    place = {name: label for label, name in enumerate(names)}
    return names, np.array([place[name] for name in column], dtype=np.int64)


def _numbers(column: "pd.Series[str]", path: Path) -> NDArray[np.int64]:
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = (numbers.isna() | (numbers % 1 != 0)).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidDataset(
            f"{path}, line {column.index[row]}: {column.name} must be a whole number, was {column.iloc[row]!r}"
        )
    return numbers.to_numpy(dtype=np.int64)


def _values(column: "pd.Series[str]") -> NDArray[Any]:
    numbers = pd.to_numeric(column, errors="coerce")
    return (numbers if numbers.notna().all() else column).to_numpy()


def _is_test(table: pd.DataFrame, options: FolderOptions, path: Path) -> NDArray[np.bool_]:
    values: list[str] = table[options.test_column].tolist()
    lines = dict(zip(reversed(values), reversed(table.index), strict=True))
    try:
        return np.array(which_are_tests(values, test_values=options.test_values))
    except UnknownTestValue as error:
        where = f"{path}, line {lines[error.value]}: {options.test_column} is"
        raise InvalidDataset(f"{where} {error.detail}") from error


ADAPTERS: dict[str, Adapter] = {"folder": open_folder, "kaggle": open_kaggle}
