"""A set of submissions to score again, and what came of each."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True)
class Chosen:
    """How the submissions of a re-judging are chosen. None: all."""

    submission_ids: tuple[str, ...] | None = None
    team_id: str | None = None
    error_class: str | None = None
    received_from: datetime | None = None
    received_before: datetime | None = None

    @property
    def is_everything(self) -> bool:
        """Whether no submission that has ended is left out."""
        return self == Chosen()

    @property
    def names_failures(self) -> bool:
        """Whether submissions that failed are chosen as such, or one by one."""
        return self.error_class is not None or self.submission_ids is not None


@dataclass(frozen=True)
class Outcome:
    """One submission of a re-judging: the evaluation that counts, and the new one."""

    submission_id: str
    team_id: str
    old_state: str
    old_score: float | None
    new_state: Annotated[str, Field(description="preliminary until it is scored, failed or cancelled")]
    new_score: float | None
