"""The base of the file's sections, moments in UTC, and documents that programs write and other versions of them read.

A stored document is read leniently, where what a person writes is read strictly: a reader ignores keys that it does not
know, and keeps them where it writes the document again. A key that changes what is computed raises `SCHEMA_VERSION`: an
older worker then leaves the competition to newer ones, instead of computing something else.
"""

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, ValidationError


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
