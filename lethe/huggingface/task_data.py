"""The files of a task in a folder: JSON lines or JSON lists, found by their names."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.task_catalogue import LanguageTask, TaskFile
from lethe.text_files import read_text

Row = dict[str, Any]
SURROGATE = re.compile("[\ud800-\udfff]")
ENDINGS = ("[jJ][sS][oO][nN][lL]", "[jJ][sS][oO][nN]")  # in upper case, too
SCORED = ("answer", "paraphrased_answer", "perturbed_answer", "gt", "text", "document")  # not without a word
FIELD_TYPES: Mapping[type, str] = {str: "a text", int: "a whole number", list: "a list of texts"}


def task_rows(task: LanguageTask, folder: Path, path: str) -> list[Row]:
    """Return the rows of a task's file; none where the task can do without it and the folder holds none.

    Raises InvalidTaskData naming what is missing or wrong.
    """
    file = task.file(path)
    names = task.patterns(file)
    if file.needed_for and not any(_matching(folder, name) for name in names):
        return []
    return read_rows(find_file(folder, names), file.fields)


def holds_task(task: LanguageTask, folder: Path) -> bool:
    """Return whether a folder holds every file that the task cannot do without; their content is not read."""
    needed = (file for file in task.files if not file.needed_for)
    return all(any(_matching(folder, name) for name in task.patterns(file)) for file in needed)


def read_files(task: LanguageTask, folder: Path, file: TaskFile) -> list[tuple[Path, int]]:
    """Return what lies in a folder as a task's file, with the number of rows; nothing where the task needs it not.

    Raises InvalidTaskData naming what is missing or wrong.
    """
    names = task.patterns(file)
    if file.needed_for and not any(_matching(folder, name) for name in names):
        return []
    return [(path, len(read_rows(path, file.fields))) for path in find_files(folder, names)]


def find_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return all files that match the first pattern that any matches. Raises InvalidTaskData if none does."""
    for name in names:
        if found := _matching(folder, name):
            return found
    raise InvalidTaskData(f"{folder} holds none of {', '.join(f'{name}.jsonl' for name in names)} (or .json)")


def find_file(folder: Path, names: Sequence[str]) -> Path:
    """Return the only file of the folder that matches the first pattern that any file matches.

    names: glob patterns without suffix, best first; `.jsonl` and `.json` are read. Raises InvalidTaskData if none or
    several match.
    """
    found = find_files(folder, names)
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise InvalidTaskData(f"{folder} holds several files that match one of {', '.join(names)}: {listed}; keep one")
    return found[0]


def read_rows(path: Path, fields: Mapping[str, type]) -> list[Row]:
    """Return the rows of a file, each with these fields of these types.

    A `list` holds texts, or is one text. Raises InvalidTaskData naming the row and the field.
    """
    rows = _parsed(path)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InvalidTaskData(f"{path}, row {number}: an object was expected, not {type(row).__name__}")
        for field, kind in fields.items():
            if not _fits(row.get(field), kind):
                raise InvalidTaskData(
                    f"{path}, row {number}: `{field}` must be {FIELD_TYPES[kind]}, and is {_shown(row.get(field))}"
                )
            for text in _texts(row[field]):
                if wrong := _wrong(text, is_scored=field in SCORED):
                    raise InvalidTaskData(f"{path}, row {number}: `{field}` {wrong}")
    if not rows:
        raise InvalidTaskData(f"{path} has no row")
    return rows


def question_pairs(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row["question"], row["answer"]) for row in rows]


def _matching(folder: Path, name: str) -> list[Path]:
    return sorted(path for ending in ENDINGS for path in folder.glob(f"{name}.{ending}"))


def _parsed(path: Path) -> list[Any]:
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise InvalidTaskData(f"{path} cannot be read: {error}") from error
    if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        return list(_json(text, str(path)))
    lines = [line for line in text.split("\n") if line.strip()]
    return [_json(line, f"{path}, row {number}") for number, line in enumerate(lines, start=1)]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidTaskData(f"{where} is not JSON: {error}") from error


def _fits(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, str) or (
            isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value)
        )
    return isinstance(value, kind) and not isinstance(value, bool)


def _texts(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _wrong(text: str, *, is_scored: bool) -> str:
    """Return what is wrong with a text; empty where nothing is."""
    if is_scored and not text.strip():
        return "is empty, so that nothing of it could be scored: leave the row out"
    if half := SURROGATE.search(text):
        return f"holds {half[0]!r}, half of a character: write the whole one (UTF-16 has two halves), or leave it out"
    return ""


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:80]
