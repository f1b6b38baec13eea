"""Mistakes in the text of a competition file, in words that lead to the right one: misspelt, quoted and double keys."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from lethe.errors import UNKNOWN, InvalidCompetitionFile, Violation

ALIKE = 0.7  # of difflib: one or two letters in a word
STRICT = {  # what pydantic calls a value of another type -> what to write instead
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
}
TOML_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")
NAME = re.compile(r"[\w-]+")
TWICE = re.compile(r"Cannot declare \((.+?),?\) twice")
Model = type[BaseModel]


def read_toml(text: str, *, source: str) -> dict[str, Any]:
    """Return what TOML `text` says. Raises InvalidCompetitionFile with the line that is wrong."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = TOML_PLACE.search(str(error))
        line = int(place[1]) if place else None
        written = text.splitlines()[line - 1] if line and line <= len(text.splitlines()) else ""
        where = Violation("file", _toml_mistake(TOML_PLACE.sub("", str(error)), written), line=line)
        at = f", line {line}" if line else ""
        raise InvalidCompetitionFile(f"{source}{at}: not TOML: {where.message}", violations=(where,)) from error
    except RecursionError as error:
        deep = Violation("file", "is nested too deeply")
        raise InvalidCompetitionFile(f"{source}: nested too deeply", violations=(deep,)) from error


def _toml_mistake(message: str, line: str) -> str:
    """Return tomllib's message as words. line: the text of the line that it stopped at."""
    if "'\\n'" in message:
        return "A quotation mark is missing: the text does not end on its line"
    if table := TWICE.match(message):
        return f"[{'.'.join(NAME.findall(table[1]))}] is there twice: put its keys into one"
    if message == "Cannot overwrite a value":
        key = line.partition("=")[0].strip(" []\"'")
        return f"{key} is set twice: take one of them out"
    return message


def wrong_types(model: Model, data: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Return each value of another type than the file's, such as a number in quotation marks.

    Pydantic reads "32" as 32: right for a form, whose fields are all text, but TOML has numbers.
    """
    try:
        model.model_validate(_with_tuples(data), strict=True)
    except ValidationError as error:
        return tuple(
            Violation(
                ".".join(map(str, item["loc"])), _other_type(item["type"], item["input"]), repr(item["input"])[:99]
            )
            for item in error.errors()
            if item["type"] in STRICT and not isinstance(item["input"], dict | tuple)
        )
    return ()


def with_suggestion(violation: Violation, model: Model) -> Violation:
    """Return the violation; one of an unknown key with the key that was meant, or the section that has it."""
    if violation.message != UNKNOWN:
        return violation
    *places, key = violation.field.split(".")
    known = _fields_at(model, places)
    if elsewhere := [section for section, names in _sections(model) if key in names]:
        return replace(violation, message=f"is not known here; it belongs in [{elsewhere[0]}]")
    if alike := get_close_matches(key, known, n=1, cutoff=ALIKE):
        return replace(violation, message=f"is not known; did you mean {alike[0]}?")
    if key in model.model_fields and places:
        return replace(violation, message="is not known here; it belongs above the first [section]")
    return replace(violation, message=f"is not known; allowed are {', '.join(known)}") if known else violation


def _other_type(kind: str, value: object) -> str:
    return STRICT[kind] + (", without quotation marks" if isinstance(value, str) else "")


def _with_tuples(value: Any) -> Any:
    """Return a value of TOML with tuples in the place of lists, which a strict tuple is not."""
    if isinstance(value, Mapping):
        return {name: _with_tuples(each) for name, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


def _fields_at(model: Model, places: Sequence[str]) -> list[str]:
    """Return the keys that the table at these places takes; none where it is not known."""
    models = [model]
    for place in places:
        if place.isdigit():
            continue
        tagged = [each for each in models if "kind" in each.model_fields and each.model_fields["kind"].default == place]
        models = tagged or [
            found
            for each in models
            if place in each.model_fields
            for found in _models(each.model_fields[place].annotation)
        ]
    return [name for each in models for name in each.model_fields]


def _models(annotation: Any) -> Iterator[Model]:
    """Yield the models in a field's type: itself, or those of a union or a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _sections(model: Model) -> Iterator[tuple[str, list[str]]]:
    """Yield each section's name with its keys, those inside others after them; not of tasks, which repeat them."""
    for name, field in model.model_fields.items():
        for found in () if name == "tasks" else _models(field.annotation):
            yield name, list(found.model_fields)
            yield from ((f"{name}.{inner}", names) for inner, names in _sections(found))
