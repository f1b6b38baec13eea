"""The files of a task in a folder: JSON lines or JSON lists, found by their names."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lethe.huggingface.errors import InvalidTaskData

Row = dict[str, Any]


def find_file(folder: Path, names: Sequence[str]) -> Path:
    """Return the only file of the folder that matches the first pattern that any file matches.

    names: glob patterns without suffix, best first; `.jsonl` and `.json` are read. Raises InvalidTaskData if none or
    several match.
    """
    for name in names:
        found = sorted({*folder.glob(f"{name}.jsonl"), *folder.glob(f"{name}.json")})
        if len(found) > 1:
            listed = ", ".join(path.name for path in found)
            raise InvalidTaskData(f"{folder} holds several files that match {name}: {listed}; keep one of them there")
        if found:
            return found[0]
    raise InvalidTaskData(f"{folder} holds none of {', '.join(f'{name}.jsonl' for name in names)} (or .json)")


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
                    f"{path}, row {number}: `{field}` must be {_words(kind)}, and is {_shown(row.get(field))}"
                )
    if not rows:
        raise InvalidTaskData(f"{path} has no row")
    return rows


def _parsed(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTaskData(f"{path} cannot be read: {error}") from error
    if path.suffix == ".json" and text.lstrip().startswith("["):
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


def _words(kind: type) -> str:
    return {str: "a text", int: "a whole number", list: "a list of texts"}[kind]


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:80]
