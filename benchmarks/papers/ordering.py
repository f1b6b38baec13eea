"""One statement about results that a paper reports, and what a benchmark says of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lethe.reports.cell_view import CellView

EVERY_CELL = "all cells"


@dataclass(frozen=True)
class Ordering:
    """One statement in one cell. holds: None where the results cannot decide it, and `numbers` says why."""

    id: str
    cell: str
    hard: bool
    statement: str
    holds: bool | None
    numbers: str


@dataclass(frozen=True)
class BenchmarkRule:
    """A statement about a complete benchmark. find: yields the cell's name, whether it holds there, and its numbers.

    needs: what a benchmark must have for it; the answer where `find` yields nothing.
    """

    id: str
    hard: bool
    statement: str
    needs: str
    find: Callable[[Sequence[CellView]], Iterator[tuple[str, bool, str]]]

    def check(self, views: Sequence[CellView]) -> Iterator[Ordering]:
        """Yield the statement for every place where the results decide it, else once with what is missing."""
        found = list(self.find(views))
        for cell, holds, numbers in found:
            yield Ordering(self.id, cell, self.hard, self.statement, bool(holds), numbers)
        if not found:
            reason = f"not in this benchmark: needs {self.needs}"
            yield Ordering(self.id, EVERY_CELL, self.hard, self.statement, None, reason)


def shown(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())
