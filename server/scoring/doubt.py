"""Why a score may not mean what it says, as the scorer stored it with the score; for organisers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class ScoreDoubt:
    """See `lethe.metrics.scoring.calibration.Doubt`.

    disagreement: by how much of the oracle's F a published family gives more than crossfit; None where it could not be
    computed. reasons: sentences. is_suspect: there are some. was_unconfirmed: the score needs a confirmation, or has
    one.
    """

    disagreement: float | None
    reasons: tuple[str, ...]
    was_unconfirmed: bool

    @property
    def is_suspect(self) -> bool:
        return bool(self.reasons)

    @classmethod
    def read(cls, details: Mapping[str, Any]) -> Self | None:
        """Return it from a score's details; None for a score from before version 0.3."""
        flags = details.get("flags", {})
        if "disagreement" not in flags:
            return None
        return cls(flags["disagreement"], tuple(flags["reasons"]), bool(flags["held"]))
