"""What slicing changed in a notebook's cells, line by line.

It is kept with a submission that was accepted: workers do the same again, whatever later versions would leave out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

MOST_EDITS = 5_000  # beyond these, workers slice again
MOST_TEXT = 50_000  # characters of all new lines


@dataclass(frozen=True)
class LineEdits:
    """Cells and lines are counted from 1. emptied: cell, first and last line. replaced: cell, line, its new text."""

    emptied: tuple[tuple[int, int, int], ...] = ()
    replaced: tuple[tuple[int, int, str], ...] = ()

    @classmethod
    def between(cls, before: Sequence[str], after: Sequence[str]) -> Self:
        """Return what makes the second cells of the first. Both have the same number of lines."""
        emptied: list[tuple[int, int, int]] = []
        replaced: list[tuple[int, int, str]] = []
        for cell, (old_text, new_text) in enumerate(zip(before, after, strict=True), start=1):
            for line, (old, new) in enumerate(zip(old_text.split("\n"), new_text.split("\n"), strict=True), start=1):
                if old == new:
                    continue
                if new:
                    replaced.append((cell, line, new))
                elif emptied and emptied[-1][0] == cell and emptied[-1][2] == line - 1:
                    emptied[-1] = (cell, emptied[-1][1], line)
                else:
                    emptied.append((cell, line, line))
        return cls(tuple(emptied), tuple(replaced))

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """Return what `as_data` gave."""
        return cls(tuple(map(tuple, data["emptied"])), tuple(map(tuple, data["replaced"])))

    def as_data(self) -> dict[str, Any] | None:
        """Return it as plain values; None where it is too large to be kept."""
        is_large = len(self.emptied) + len(self.replaced) > MOST_EDITS
        if is_large or sum(len(text) for _cell, _line, text in self.replaced) > MOST_TEXT:
            return None
        return {"emptied": [list(part) for part in self.emptied], "replaced": [list(part) for part in self.replaced]}

    def apply(self, cells: Sequence[str]) -> list[str]:
        """Return the cells with these changes."""
        texts = [text.split("\n") for text in cells]
        for cell, first, last in self.emptied:
            texts[cell - 1][first - 1 : last] = [""] * (last - first + 1)
        for cell, line, text in self.replaced:
            texts[cell - 1][line - 1] = text
        return ["\n".join(lines) for lines in texts]
