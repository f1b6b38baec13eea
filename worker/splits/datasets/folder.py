"""A folder of pictures with a table that names them; and the layout of the 2023 competition on Kaggle."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from worker.splits.datasets.image_dataset import ImageDataset, own_person_each
from worker.splits.datasets.pictures import PictureOptions, decode_pictures, need, number_names
from worker.splits.errors import InvalidDataset


class FolderOptions(PictureOptions):
    """`table` is a CSV below `root`, one row a picture. Labels may be numbers or words."""

    table: str = "images.csv"
    path_column: str = "path"
    label_column: str = "label"
    person_column: str | None = None
    test_column: str | None = None
    extra_columns: tuple[str, ...] = ()


def open_folder(options: Mapping[str, Any]) -> ImageDataset:
    """Return the pictures that the table names. Put there: root/<table> and the pictures at the paths it holds."""
    parsed = FolderOptions.parse(options)
    table_path = need(parsed.root / parsed.table, f"a CSV with columns {parsed.path_column}, {parsed.label_column}")
    table = _read_table(table_path)
    wanted = [parsed.path_column, parsed.label_column, parsed.person_column, parsed.test_column, *parsed.extra_columns]
    _check_columns(table, table_path, [name for name in wanted if name])
    paths = [_inside(parsed.root, str(name), table_path) for name in table[parsed.path_column]]
    names, labels = np.unique(table[parsed.label_column].to_numpy(), return_inverse=True)
    return ImageDataset(
        images=decode_pictures(paths, parsed),
        labels=labels.astype(np.int64),
        persons=(
            number_names(table[parsed.person_column].astype(str).tolist())
            if parsed.person_column
            else own_person_each(len(paths))
        ),
        n_classes=len(names),
        input_scale=1 / 255,
        class_names=tuple(str(name) for name in names),
        is_test=_truth(table[parsed.test_column]) if parsed.test_column else None,
        columns={name: table[name].to_numpy() for name in parsed.extra_columns},
    )


def open_kaggle(options: Mapping[str, Any]) -> ImageDataset:
    """Return all pictures of the competition's layout; retain and forget sets are drawn anew.

    Put there: root/retain.csv, forget.csv, validation.csv (image_id, age_group, age, person_id) and
    root/images/a/b.png for the image_id a-b. The network sees 0..255, as it did there.
    """
    parsed = PictureOptions.parse(options)
    tables = []
    for name in ("retain", "forget", "validation"):
        path = need(parsed.root / f"{name}.csv", "the competition's table with image_id, age_group, age, person_id")
        table = _read_table(path)
        _check_columns(table, path, ["image_id", "age_group", "age", "person_id"])
        tables.append(table)
    rows = pd.concat(tables, ignore_index=True)
    paths = [_kaggle_path(parsed.root, str(image_id)) for image_id in rows["image_id"]]
    labels = rows["age_group"].to_numpy(dtype=np.int64)
    return ImageDataset(
        images=decode_pictures(paths, parsed),
        labels=labels,
        persons=number_names(rows["person_id"].astype(str).tolist()),
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
        table = pd.read_csv(path)
    except (ValueError, OSError) as error:
        raise InvalidDataset(f"{path} cannot be read as CSV: {error}") from error
    if table.empty:
        raise InvalidDataset(f"{path} has no rows")
    return table


def _check_columns(table: pd.DataFrame, path: Path, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.columns:
            raise InvalidDataset(f"{path} has no column {name!r}: it has {', '.join(map(str, table.columns))}")
        if table[name].isna().any():
            row = int(table[name].isna().to_numpy().argmax()) + 2
            raise InvalidDataset(f"{path}, line {row}: column {name!r} is empty")


def _inside(root: Path, name: str, table_path: Path) -> Path:
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise InvalidDataset(f"{table_path} names {name!r}, which lies outside {root}")
    return need(path, f"a picture that {table_path.name} names")


def _truth(column: "pd.Series[Any]") -> np.ndarray[Any, np.dtype[np.bool_]]:
    words = column.astype(str).str.lower()
    truth: np.ndarray[Any, np.dtype[np.bool_]] = words.isin(("1", "true", "yes", "test")).to_numpy(dtype=np.bool_)
    return truth
