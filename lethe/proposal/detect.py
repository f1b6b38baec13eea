"""What an organiser's folder or archive holds: kind of data, classes, persons, sizes of images."""

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from lethe.data.datasets.image_list import TEST_WORDS, ImageList, Level, is_image, list_of_rows, rows_of_folders
from lethe.data.errors import InvalidDataset
from lethe.proposal.image_header import HEADER_BYTES, ImageHeader, read_header
from lethe.proposal.source import Source

MOST_TABLE_BYTES = 64 << 20
HEADERS_READ = 50  # of images, spread over all
COLUMNS = {  # what a column is for -> how it may be called
    "label": ("label", "class", "category", "target", "y", "age_group"),
    "person": ("person", "person_id", "identity", "subject", "user", "writer", "author", "patient", "id_person", "who"),
    "test": ("test", "is_test", "split", "set", "partition", "subset"),
}
TEST_FOLDERS = frozenset(word for word in TEST_WORDS if word.isalpha() and len(word) > 2) - {"yes", "false", "true"}
HELP = (
    "Put images into a folder for each class (cat/1.png), or for each class and person (cat/ann/1.png); or add a CSV "
    "with a column of paths and one of classes; or name files of questions *.jsonl"
)


@dataclass(frozen=True, eq=False)
class Detected:
    """images: None for questions. header: of a usual image. questions, groups: of JSON Lines. notes: for people."""

    dataset: str
    options: Mapping[str, Any]
    images: ImageList | None = None
    header: ImageHeader | None = None
    questions: int = 0
    groups: int = 0
    notes: tuple[str, ...] = ()
    class_counts: Mapping[str, int] = field(default_factory=dict)


def detect(source: Source) -> Detected:
    """Return what is there. Raises InvalidDataset naming what was found and what is understood."""
    tables = [name for name in source.names if name.lower().endswith(".csv") and "/" not in name]
    found = _from_tables(source, tables)
    if found is None and any(map(is_image, source.names)):
        found = _from_folders(source)
    if found is not None:
        return found
    if questions := [name for name in source.names if name.endswith(".jsonl") and "/" not in name]:
        return _from_questions(source, questions)
    shown = ", ".join(source.names[:5]) + (", …" if len(source.names) > 5 else "")
    looked_at = f"among {len(source.names)} files ({shown})" if source.names else "for there are no files"
    raise InvalidDataset(f"no images and no questions were found {looked_at}. {HELP}")


def _from_tables(source: Source, tables: Sequence[str]) -> Detected | None:
    """Return the images of the first table that names some."""
    names = set(source.names)
    for table in tables:
        rows = _read_csv(source, table)
        columns = list(rows[0]) if rows else []
        path = next((each for each in columns if all(row[each] in names for row in rows)), None)
        if path is None or not is_image(rows[0][path]):
            continue
        known = {role: _column(columns, role) for role in COLUMNS}
        label = known["label"] or _fewest_values(
            rows, [each for each in columns if each not in {path, *known.values()}]
        )
        if label is None:
            raise InvalidDataset(f"{table} has no column of classes: it has {', '.join(columns)}; call one `label`")
        test = known["test"]
        if test and any(row[test].strip().lower() not in TEST_WORDS for row in rows):
            test = None
        _require_filled(table, rows, [name for name in (label, known["person"]) if name])
        options = {"table": table, "path_column": path, "label_column": label}
        options |= {f"{role}_column": name for role, name in (("person", known["person"]), ("test", test)) if name}
        images = list_of_rows(rows, {"path": path, "label": label, "person": known["person"], "test": test})
        return _of_images(source, options, images)
    return None


def _from_folders(source: Source) -> Detected:
    names = [name for name in source.names if is_image(name)]
    depths = Counter(len(PurePosixPath(name).parts) - 1 for name in names)
    depth = depths.most_common(1)[0][0]
    if len(depths) > 1:
        odd = next(name for name in names if len(PurePosixPath(name).parts) - 1 != depth)
        raise InvalidDataset(f"most images lie {depth} folders deep, but {odd} does not. {HELP}")
    levels = _levels([PurePosixPath(name).parts[:-1] for name in names])
    rows = rows_of_folders(names, levels)
    columns = {
        "path": "path",
        "label": "label",
        **{role: role if role in levels else None for role in ("person", "test")},
    }
    return _of_images(source, {"folders": list(levels)}, list_of_rows(rows, columns))


def _levels(folders: Sequence[tuple[str, ...]]) -> list[Level]:
    """Return what each level of folders says: whether for testing, the class, the person."""
    levels: list[Level] = []
    for place in range(len(folders[0])):
        values = {parts[place] for parts in folders}
        if len(values) == 1:
            levels.append("any")
        elif "test" not in levels and {value.lower() for value in values} <= TEST_FOLDERS:
            levels.append("test")
        elif "label" not in levels:
            levels.append("label")
        else:
            levels.append("any" if "person" in levels else "person")
    if "label" not in levels:
        raise InvalidDataset(f"all images lie in one folder, so their classes are not known. {HELP}")
    return levels


def _of_images(source: Source, options: dict[str, Any], images: ImageList) -> Detected:
    if images.n_classes < 2:
        raise InvalidDataset(f"all {len(images)} images are of one class, {images.class_names[0]!r}. {HELP}")
    if images.n_classes > len(images) / 2:
        raise InvalidDataset(
            f"{len(images)} images are of {images.n_classes} classes, most of one image: is the column or folder of "
            f"classes ({options.get('label_column') or options['folders']}) the right one?"
        )
    step = max(1, len(images) // HEADERS_READ)
    read = [read_header(source.read(name, at_most=HEADER_BYTES)) for name in images.names[::step][:HEADERS_READ]]
    headers = [header for header in read if header is not None]
    usual = Counter(headers).most_common(1)[0][0] if headers else None
    notes = []
    if len({(each.width, each.height) for each in headers}) > 1:
        notes.append("images have several sizes: all are scaled to one")
    if not images.knows_persons:
        notes.append("no persons were found: each image is its own; if some show the same person, name persons too")
    options |= {
        "size": _side(usual),
        "channels": 3 if any(each.channels == 3 for each in headers) or not headers else 1,
    }
    counts = Counter(images.labels.tolist())
    named = {name: counts[number] for number, name in enumerate(images.class_names)}
    return Detected("folder", options, images, usual, notes=tuple(notes), class_counts=named)


def _side(header: ImageHeader | None) -> int:
    """Return the side of the squares that images are scaled to: their own up to 64 pixels."""
    return 32 if header is None else min(64, max(8, min(header.width, header.height)))


def _from_questions(source: Source, files: Sequence[str]) -> Detected:
    groups: Counter[str] = Counter()
    n_questions = 0
    for name in files:
        lines = source.read(name, at_most=MOST_TABLE_BYTES).decode("utf-8", errors="replace").split("\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidDataset(f"{name}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict) or not {"question", "answer"} <= row.keys():
                raise InvalidDataset(f"{name}, line {number} has no question and answer")
            n_questions += 1
            groups.update([str(row["group"])] if "group" in row else [])
    options: dict[str, Any] = {"files": list(files), "vocabulary": 2048}
    notes = ["the network learns from nothing but these questions; name a pretrained one if you have it"]
    if groups.total() < n_questions:
        options["group_size"] = 20
        notes.append("questions have no `group`: every 20 successive ones are taken for one author's")
    n_groups = len(groups) if groups.total() == n_questions else -(-n_questions // 20)
    return Detected("questions", options, questions=n_questions, groups=n_groups, notes=tuple(notes))


def _read_csv(source: Source, name: str) -> list[dict[str, str]]:
    text = source.read(name, at_most=MOST_TABLE_BYTES).decode("utf-8-sig", errors="replace")
    try:
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise InvalidDataset(f"{name} cannot be read as CSV: {error}") from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InvalidDataset(f"{name}, line {number} has more or fewer cells than the first line")
    return rows


def _column(columns: Sequence[str], role: str) -> str | None:
    lower = {name.lower(): name for name in reversed(columns)}
    return next((lower[name] for name in COLUMNS[role] if name in lower), None)


def _fewest_values(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> str | None:
    """Return the column with the fewest different values, of those with two or more; None if none repeats."""
    counts = {name: len({row[name] for row in rows}) for name in columns}
    possible = {name: count for name, count in counts.items() if 2 <= count <= len(rows) / 2}
    return min(possible, key=lambda name: possible[name], default=None)


def _require_filled(table: str, rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    for number, row in enumerate(rows, start=2):
        for name in columns:
            if not row[name].strip():
                raise InvalidDataset(f"{table}, line {number}: column {name!r} is empty")
