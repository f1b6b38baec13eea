"""Methods of the literature that a competition file names as its reference lines.

The catalogue is loaded when a file names a method; most files do not.
"""

from copy import deepcopy
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from lethe.errors import AppError

LABEL_LENGTH = 200


class Baseline(BaseModel):
    """A method of `lethe methods list`. Every other key sets one of its constants."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str

    @model_validator(mode="after")
    def _can_be_rendered(self) -> Self:
        try:
            self.source()
        except AppError as error:
            raise ValueError(error.detail) from error
        if len(self.label) > LABEL_LENGTH:
            raise ValueError(
                f"{self.id} has settings of {len(self.label)} characters; at most {LABEL_LENGTH} are taken"
            )
        return self

    @property
    def settings(self) -> dict[str, Any]:
        return deepcopy(self.model_extra or {})

    @property
    def label(self) -> str:
        """The method and what is set: it names the reference line, and no two of a file are the same."""
        return " ".join([self.id, *(f"{name}={value}" for name, value in sorted(self.settings.items()))])

    def require_fits(self, kind: str) -> None:
        """Raise ValueError unless the method is for this kind of task."""
        from lethe.methods.catalogue import method_ids, method_task  # noqa: PLC0415

        if method_task(self.id) != kind:
            raise ValueError(
                f"report.baselines: {self.id} is for tasks of kind {method_task(self.id)!r}; those for {kind!r} are "
                f"{', '.join(method_ids(kind))}"
            )

    def source(self) -> str:
        """Return the submission's text. Raises NotFound or InvalidInput for what the method does not know."""
        from lethe.methods.rendering import render  # noqa: PLC0415

        return render(self.id, self.settings)


def ids_as_tables(value: Any) -> Any:
    """Return a list in which each id has become a table, and tables stay; anything else as it is."""
    return [{"id": each} if isinstance(each, str) else each for each in value] if isinstance(value, list) else value
