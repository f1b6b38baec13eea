"""The base of the file's sections, moments in UTC, and values that a form must not change."""

from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict


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
