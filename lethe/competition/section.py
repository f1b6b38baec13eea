"""The base of the file's sections, moments in UTC, and how documents are read.

A stored document, which programs write and other versions of them read, is read leniently, where what a person writes
is read strictly, its mistakes said in words that lead to the right one. A lenient reader ignores keys that it does not
know, and keeps them where it writes the document again. A key that changes what is computed raises `SCHEMA_VERSION`: an
older worker then leaves the competition to newer ones, instead of computing something else.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated, Any, NoReturn, TypeVar, get_args

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, ValidationError

from lethe.errors import UNKNOWN, InvalidCompetitionFile, Violation


class Section(BaseModel):
    """Base of a section's model."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, json_schema_serialization_defaults_required=True
    )


EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(3000, 1, 1, tzinfo=UTC)


def within_range(value: datetime) -> datetime:
    """Return an aware datetime. Raises ValueError if it lies before 1970 or after 3000."""
    if not EARLIEST <= value <= LATEST:
        raise ValueError(f"must lie between the years {EARLIEST.year} and {LATEST.year}")
    return value


Timestamp = Annotated[AwareDatetime, AfterValidator(within_range)]


def _refuse(self: object, *_: Any, **__: Any) -> NoReturn:
    raise TypeError(f"this {type(self).__mro__[1].__name__} is shared and cannot be changed; change a copy")


class ReadOnlyDict(dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnlyDict, (dict(self),)


class ReadOnlyList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = _refuse
    reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnlyList, (list(self),)


def read_only(value: Any) -> Any:
    """Return a value of JSON or TOML with every dictionary and list in it read-only."""
    if isinstance(value, dict):
        return ReadOnlyDict({name: read_only(each) for name, each in value.items()})
    if isinstance(value, list):
        return ReadOnlyList(read_only(each) for each in value)
    return value


Options = Annotated[dict[str, Any], AfterValidator(read_only)]
Weights = Annotated[dict[str, float], AfterValidator(read_only)]


SCHEMA_VERSION = 1  # of a competition's stored file; files of version 0.2 and before have none
SCHEMA_KEY = "schema_version"
RENAMED = frozenset({"metric", "strangers"})  # keys of version 0.2 that are read as others
M = TypeVar("M", bound=BaseModel)


def read_stored(model: type[M], document: Any) -> M:
    """Return a document that a program of this or another version wrote. Raises pydantic.ValidationError.

    Unknown keys are left out one by one: `extra="ignore"` would also drop what some sections take as parameters.
    """
    if isinstance(document, Mapping):
        document = {name: value for name, value in document.items() if name != SCHEMA_KEY}
    while True:
        try:
            return model.model_validate(document)
        except ValidationError as error:
            unknown = [each["loc"] for each in error.errors(include_url=False) if each["type"] == "extra_forbidden"]
            if not unknown:
                raise
            document = deepcopy(document)
            for place in unknown:
                _leave_out(document, place)


def _leave_out(document: Any, place: tuple[int | str, ...]) -> None:
    """Delete the value at a place of the document. Names in the place that are no keys are tags of unions."""
    *path, last = place
    for step in path:
        if isinstance(step, int) or (isinstance(document, dict) and step in document):
            document = document[step]
    del document[last]


def as_stored(file: BaseModel, *, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a competition's file as it is stored. before: what is stored now, whose unknown keys are kept."""
    stored = {SCHEMA_KEY: SCHEMA_VERSION, **file.model_dump(mode="json")}
    if before is None:
        return stored
    stored[SCHEMA_KEY] = max(SCHEMA_VERSION, schema_version(before))
    known: dict[str, Any] = _with_unknown(stored, before)
    return known


def schema_version(document: Mapping[str, Any]) -> int:
    """Return the version of a stored document; 0 if it says none."""
    found = document.get(SCHEMA_KEY)
    return found if isinstance(found, int) else 0


def _with_unknown(stored: Any, before: Any) -> Any:
    if isinstance(stored, dict) and isinstance(before, dict):
        known = {name: _with_unknown(value, before.get(name)) for name, value in stored.items()}
        return {name: value for name, value in before.items() if name not in stored and name not in RENAMED} | known
    if isinstance(stored, list) and isinstance(before, list) and len(stored) == len(before):
        return [_with_unknown(*pair) for pair in zip(stored, before, strict=True)]
    return stored


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
