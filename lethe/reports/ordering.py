"""One statement of a paper about one cell of a benchmark."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ordering:
    """One statement in one cell. holds: None where the results cannot decide it, and `numbers` says why."""

    id: str
    cell: str
    hard: bool
    statement: str
    holds: bool | None
    numbers: str
