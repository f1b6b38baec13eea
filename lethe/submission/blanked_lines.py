"""The text of cells without some of their statements, with as many lines."""

from collections.abc import Sequence

from lethe.submission.notebook_statements import Statement


def without_statements(cells: Sequence[str], left_out: Sequence[Statement], kept: Sequence[Statement]) -> list[str]:
    """Return the cells with the lines of what is left out empty. A line that it shares with what is kept is cut."""
    texts = [text.split("\n") for text in cells]
    shared = {(found.cell, line) for found in kept for line in found.lines}
    for found in reversed(left_out):  # from the last, so that columns before it stay what they are
        first, last = found.lines
        lines = texts[found.cell - 1]
        before, after = _around(lines, found) if {(found.cell, first), (found.cell, last)} & shared else ("", "")
        lines[first - 1 : last] = [""] * (last - first + 1)
        lines[last - 1] = after
        lines[first - 1] = f"{before}pass{after}" if first == last and (before or after) else before or lines[first - 1]
    return ["\n".join(lines) for lines in texts]


def _around(lines: Sequence[str], statement: Statement) -> tuple[str, str]:
    """Return what stands in a statement's lines before and after it, to be run without it: `a = 1; f(); b = 2`."""
    first, last = statement.lines
    before = lines[first - 1].encode()[: statement.node.col_offset].decode()
    after = lines[last - 1].encode()[statement.node.end_col_offset :].decode()
    return before, after if first == last else after.lstrip(" \t;")
