"""Changes of a notebook's lines that earlier versions made when they accepted it, and that workers make again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class LineEdits:
    """Cells and lines are counted from 1. emptied: cell, first and last line. replaced: cell, line, its new text."""

    emptied: tuple[tuple[int, int, int], ...] = ()
    replaced: tuple[tuple[int, int, str], ...] = ()

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the changes that were stored with a submission."""
        return cls(tuple(map(tuple, data["emptied"])), tuple(map(tuple, data["replaced"])))

    def apply(self, cells: Sequence[str]) -> list[str]:
        """Return the cells with these changes."""
        texts = [text.split("\n") for text in cells]
        for cell, first, last in self.emptied:
            texts[cell - 1][first - 1 : last] = [""] * (last - first + 1)
        for cell, line, text in self.replaced:
            texts[cell - 1][line - 1] = text
        return ["\n".join(lines) for lines in texts]
