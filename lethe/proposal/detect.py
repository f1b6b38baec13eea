"""What an organiser's folder or archive holds: kind of data, classes, persons, sizes of images."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lethe.data.csv_table import SUFFIXES, CsvTable, parse_csv
from lethe.data.datasets.image_list import (
    ImageList,
    ImageNames,
    UnknownTestValue,
    is_image,
    list_of_rows,
    notes_on_files,
    rows_of_folders,
    which_are_tests,
)
from lethe.data.errors import InvalidDataset
from lethe.proposal.source import (
    HEADER_BYTES,
    HELP,
    ImageHeader,
    Source,
    chosen_levels,
    equal_files,
    guessed_levels,
    read_header,
)
from lethe.text_files import decode_text

MAX_TABLE_BYTES = 64 << 20
HEADERS_READ = 50  # of images, spread over all
ROWS_TRIED = 20  # of a column that names no image, for images that are spelt otherwise
COLUMNS = {  # what a column is for -> how it may be called
    "label": ("label", "class", "category", "target", "y", "age_group"),
    "person": ("person", "person_id", "identity", "subject", "user", "writer", "author", "patient", "id_person", "who"),
    "test": ("test", "is_test", "split", "set", "partition", "subset"),
}
CHOICES = ("table", "path_column", "label_column", "person_column", "test_column", "test_values", "folders")


@dataclass(frozen=True, eq=False)
class Detected:
    """images: None for questions; the rows of a table are read as such. header: of a usual image. features: numbers in
    a row of a table. questions, groups: of JSON Lines. notes: for people."""

    dataset: str
    options: Mapping[str, Any]
    images: ImageList | None = None
    header: ImageHeader | None = None
    features: int = 0
    questions: int = 0
    groups: int = 0
    notes: tuple[str, ...] = ()
    class_counts: Mapping[str, int] = field(default_factory=dict)


def detect(source: Source, *, wanted: Mapping[str, Any] | None = None) -> Detected:
    """Return what is there, and in its notes what was taken for what, and what is not used.

    wanted: options of the dataset `folder` (CHOICES) that its owner names, in place of what is guessed.
    Raises InvalidDataset naming what was found and what is understood.
    """
    chosen = {name: value for name, value in (wanted or {}).items() if name in CHOICES and value}
    notes: list[str] = []
    found = None if "folders" in chosen else _from_tables(source, chosen, notes)
    if found is None and any(map(is_image, source.names)):
        try:
            found = _from_folders(source, chosen, notes)
        except InvalidDataset as error:
            raise InvalidDataset("; ".join([error.detail, *notes])) from error
    if found is not None:
        return found
    if questions := [name for name in source.names if name.lower().endswith(".jsonl") and "/" not in name]:
        return _from_questions(source, questions)
    if tables := [name for name in source.names if name.lower().endswith(SUFFIXES) and "/" not in name]:
        return _from_rows(source, tables, chosen)
    shown = ", ".join(source.names[:5]) + (", …" if len(source.names) > 5 else "")
    looked_at = f"among {len(source.names)} files ({shown})" if source.names else "for there are no files"
    raise InvalidDataset(f"no images, no questions and no table were found {looked_at}. {HELP}")


def words_of(text: str) -> list[str]:
    """Return what commas separate, as a form or a command says a list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _from_tables(source: Source, chosen: Mapping[str, Any], notes: list[str]) -> Detected | None:
    """Return the images of the table that names them; None if none does, and why not among the notes."""
    images = ImageNames(filter(is_image, source.names))
    there = [name for name in source.names if name.lower().endswith(SUFFIXES)]
    if "table" in chosen and chosen["table"] not in there:
        raise InvalidDataset(f"there is no table {chosen['table']!r}: there are {', '.join(there[:9]) or 'none'}")
    naming: dict[str, tuple[CsvTable, str]] = {}
    for name in [chosen["table"]] if "table" in chosen else there:
        if "/" in name and name != chosen.get("table"):
            notes.append(f"{name} lies in a folder and is not used: a table that names images lies beside the folders")
            continue
        table = parse_csv(source.read(name, at_most=MAX_TABLE_BYTES), source=name)
        path = chosen.get("path_column") or _path_column(table, images)
        if path is None:
            notes.append(f"{name} is not used: none of its columns ({', '.join(table.columns[:20])}) names images here")
        else:
            naming[name] = table, path
    if len(naming) > 1:
        raise InvalidDataset(f"{' and '.join(naming)} name images: join them into one, or choose one as `table`")
    for name, (table, path) in naming.items():
        return _of_table(source, chosen, notes, name=name, table=table, path=path)
    return None


def _from_rows(source: Source, tables: Sequence[str], chosen: Mapping[str, Any]) -> Detected:
    """Return a table whose rows are the data: numbers and words, with a column of classes."""
    name = chosen.get("table") or tables[0]
    if len(tables) > 1 and "table" not in chosen:
        raise InvalidDataset(f"{' and '.join(tables)} are tables: join them into one, or choose one as `table`")
    table = parse_csv(source.read(name, at_most=MAX_TABLE_BYTES), source=name)
    _require_filled(name, table, table.columns)
    notes: list[str] = []
    person = _role(table, name, "person", chosen)
    label = _label_column(table, name, chosen, taken=[person], notes=notes)
    others = [column for column in table.columns if column not in (label, person)]
    unlike = [column for column in others if _differs_in_each_row(table.column(column))]
    notes.append(f"{name} is read with the columns of classes {label!r} and of persons {person!r}: name others as "
                 f"label_column, person_column; {len(others) - len(unlike)} columns are features")  # fmt: skip
    if unlike:
        notes.append(f"left out are columns of words that differ in each row: {', '.join(unlike[:9])}")
    images = ImageList.of(
        [f"line {line}" for line in table.lines], table.column(label), persons=table.column(person) if person else None
    )
    options = {"file": name, "label": label} | ({"person": person} if person else {})
    return Detected(
        "table",
        _checked_classes(images, options | ({"leave_out": unlike} if unlike else {}), of=label, example="row"),
        images,
        features=len(others) - len(unlike),
        notes=(*notes, *(() if person else (NO_PERSONS.format("row"),))),
        class_counts=_counts(images),
    )


def _differs_in_each_row(cells: Sequence[str]) -> bool:
    """Return whether a column is of words, each of which is there once."""
    try:
        list(map(float, cells))
    except ValueError:
        return len(set(cells)) == len(cells)
    return False


def _path_column(table: CsvTable, images: ImageNames) -> str | None:
    """Return the column that names most images; else one that nearly does, so that it is said what does not fit."""
    cells = {name: table.column(name) for name in table.columns}
    named = {name: sum(images.find(cell) is not None for cell in column) for name, column in cells.items()}
    if not any(named.values()) and 2 * len(table.rows) >= len(images):  # a shorter one says something else
        tried = {name: column[:ROWS_TRIED] for name, column in cells.items()}
        named = {name: sum(images.alike(cell) is not None for cell in column) for name, column in tried.items()}
    best = max(named, key=lambda name: named[name])
    return best if named[best] else None


def _of_table(
    source: Source, chosen: Mapping[str, Any], notes: list[str], *, name: str, table: CsvTable, path: str
) -> Detected:
    columns = {"path": path} | {role: _role(table, name, role, chosen) for role in COLUMNS}
    columns["label"] = _label_column(table, name, chosen, taken=list(columns.values()), notes=notes)
    _require_filled(name, table, [each for role in ("label", "person") if (each := columns[role])])
    test_values = chosen.get("test_values", ())
    if columns["test"] and "test_column" not in chosen and not test_values:
        try:
            which_are_tests(table.column(columns["test"]))
        except UnknownTestValue as error:
            notes.append(f"column {columns['test']!r} is not used: it holds {error.detail}")
            columns["test"] = None
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    _name_files(name, table, rows, path, ImageNames(source.names))
    taken = [f"{role} {column!r}" for role, column in columns.items() if column]
    notes.append(f"{name} is read with the columns {', '.join(taken)}: name others as label_column, person_column, …")
    options: dict[str, Any] = {"table": name}
    options |= {f"{role}_column": column for role, column in columns.items() if column}
    options |= {"test_values": list(test_values)} if test_values else {}
    images = list_of_rows(rows, columns, test_values=test_values)
    return _of_images(source, options, images, [each for each in source.names if each != name], notes)


def _name_files(name: str, table: CsvTable, rows: Sequence[dict[str, str]], path: str, images: ImageNames) -> None:
    """Set each row's path to its file's name. Raises InvalidDataset for one that is no image, or is there twice."""
    seen: dict[str, int] = {}
    for line, row in zip(table.lines, rows, strict=True):
        found = images.find(row[path])
        if found is None or not is_image(found):
            wrong = images.missing(row[path]) if found is None else "is no image"
            raise InvalidDataset(f"{name}, line {line}: {path} {row[path]!r} {wrong}")
        if seen.setdefault(found, line) != line:
            raise InvalidDataset(f"{name}, line {line}: {found!r} is in line {seen[found]} already")
        row[path] = found


def _label_column(
    table: CsvTable, name: str, chosen: Mapping[str, Any], *, taken: Sequence[str | None], notes: list[str]
) -> str:
    """Return the column of classes: the one that is named, else one called so, else that with the fewest values."""
    if found := _role(table, name, "label", chosen):
        return found
    others = [each for each in table.columns if each not in taken]
    counts = {each: len(set(table.column(each))) for each in others}
    possible = [each for each in others if 2 <= counts[each] <= len(table.rows) / 2]
    fewest = min(possible, key=counts.__getitem__, default=None)
    if fewest is None:
        shown = ", ".join(table.columns)
        raise InvalidDataset(f"{name} has no column of classes: it has {shown}; name it as `label_column`")
    if len(others) > 1:
        notes.append(f"no column is called label or class: {fewest!r} has the fewest values")
    return fewest


def _role(table: CsvTable, name: str, role: str, chosen: Mapping[str, Any]) -> str | None:
    """Return the column for a role: the one that is named, else one whose name says it."""
    if wanted := chosen.get(f"{role}_column"):
        if wanted not in table.columns:
            raise InvalidDataset(f"{name} has no column {wanted!r}: it has {', '.join(table.columns)}")
        return str(wanted)
    lower = {column.lower(): column for column in reversed(table.columns)}
    return next((lower[each] for each in COLUMNS[role] if each in lower), None)


def _from_folders(source: Source, chosen: Mapping[str, Any], notes: list[str]) -> Detected:
    names = [name for name in source.names if is_image(name)]
    test_values = chosen.get("test_values", ())
    levels = chosen_levels(chosen["folders"]) if "folders" in chosen else guessed_levels(names, test_values)
    rows = rows_of_folders(names, levels)
    columns = {"path": "path", "label": "label"} | {
        role: role if role in levels else None for role in ("person", "test")
    }
    said = "/".join(f"<{level}>" for level in levels)
    notes.append(f"folders are read as {said}: name others as `folders`, and those for testing as `test_values`")
    options = {"folders": list(levels)} | ({"test_values": list(test_values)} if test_values else {})
    return _of_images(source, options, list_of_rows(rows, columns, test_values=test_values), source.names, notes)


def _of_images(
    source: Source, options: dict[str, Any], images: ImageList, names: Sequence[str], notes: Sequence[str]
) -> Detected:
    """names: of the files among which the images were found."""
    _checked_classes(images, options, of=options.get("label_column") or options["folders"], example="image")
    step = max(1, len(images) // HEADERS_READ)
    read = [read_header(source.read(name, at_most=HEADER_BYTES)) for name in images.names[::step][:HEADERS_READ]]
    headers = [header for header in read if header is not None]
    usual = Counter(headers).most_common(1)[0][0] if headers else None
    found = [*notes, *notes_on_files(names, images.names, images.class_names), *_notes_on_copies(source, images)]
    if len({(each.width, each.height) for each in headers}) > 1:
        found.append("images have several sizes: all are scaled to one")
    found += [note for note, is_so in IN_HEADERS if any(map(is_so, headers))]
    if not images.knows_persons:
        found.append(NO_PERSONS.format("image"))
    channels = 3 if any(each.channels == 3 for each in headers) or not headers else 1
    side = min(64, max(8, min(usual.width, usual.height))) if usual else 32  # the pictures' own up to 64 pixels
    options |= {"size": side, "channels": channels}
    return Detected("folder", options, images, usual, notes=tuple(found), class_counts=_counts(images))


NO_PERSONS = "no persons were found: each {0} is its own; if some are of the same person, name persons too"


def _checked_classes(images: ImageList, options: dict[str, Any], *, of: object, example: str) -> dict[str, Any]:
    """Return the options. Raises InvalidDataset where what says the classes (`of`) cannot be the right one."""
    if images.n_classes < 2:
        raise InvalidDataset(f"all {len(images)} {example}s are of one class, {images.class_names[0]!r}. {HELP}")
    if images.n_classes > len(images) / 2:
        raise InvalidDataset(
            f"{len(images)} {example}s are of {images.n_classes} classes, most of one {example}: is the column or "
            f"folder of classes ({of}) the right one?"
        )
    return options


def _counts(images: ImageList) -> dict[str, int]:
    counts = Counter(images.labels.tolist())
    return {name: counts[number] for number, name in enumerate(images.class_names)}


IN_HEADERS = (
    ("some images are transparent: they are laid on white", lambda header: header.has_alpha),
    ("some images have more than 8 bits a channel, and are refused: convert them", lambda header: header.bits > 8),
    ("some images are turned as their camera's note on orientation says", lambda header: header.is_turned),
)


def _notes_on_copies(source: Source, images: ImageList) -> list[str]:
    """Return what to say of images that are the same to the byte."""
    pairs = [(copies[0], copy) for copies in equal_files(source, images.names) for copy in copies[1:]]
    if not pairs:
        return []
    labels = dict(zip(images.names, images.labels.tolist(), strict=True))
    across = [pair for pair in pairs if labels[pair[0]] != labels[pair[1]]]
    one, two = (across or pairs)[0]
    return [
        f"{len(pairs)} images are copies of another, {len(across)} of them in another class, first {two} of {one}: "
        "take them away, or one may be forgotten while the other is kept"
    ]


def _from_questions(source: Source, files: Sequence[str]) -> Detected:
    groups: Counter[str] = Counter()
    n_questions = 0
    for name in files:
        for number, line in enumerate(_text(source, name).split("\n"), start=1):
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


def _text(source: Source, name: str) -> str:
    try:
        return decode_text(source.read(name, at_most=MAX_TABLE_BYTES))
    except ValueError as error:
        raise InvalidDataset(f"{name} cannot be read: {error}") from error


def _require_filled(name: str, table: CsvTable, columns: Sequence[str]) -> None:
    for column in columns:
        for line, cell in zip(table.lines, table.column(column), strict=True):
            if not cell:
                raise InvalidDataset(f"{name}, line {line}: column {column!r} is empty")
