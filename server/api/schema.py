"""Bases of what goes in and out of routes."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class In(BaseModel):
    """A body; what it does not name is refused."""

    model_config = ConfigDict(extra="forbid")


class FromProgram(BaseModel):
    """A body that a program of Lethe writes, perhaps of another version: what it does not name is left."""


class Out(BaseModel):
    """An answer."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def read(cls, row: object, **more: Any) -> Self:
        """Return the answer with the attributes of `row`, and with `more` in place of those that differ."""
        given = {
            name: getattr(row, name)
            for name, field in cls.model_fields.items()
            if name not in more and (field.is_required() or hasattr(row, name))
        }
        return cls.model_validate(given | more, from_attributes=True)
