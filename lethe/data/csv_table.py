"""A table in CSV, as spreadsheets of any system and language write it: separated by commas, semicolons or tabs."""

import csv
import io
from dataclasses import dataclass

from lethe.data.errors import InvalidDataset
from lethe.text_files import composed, decode_text

SEPARATORS = (",", ";", "\t", "|")
SUFFIXES = (".csv", ".tsv")
SPREADSHEETS_LINE = "sep="  # Excel's own first line


@dataclass(frozen=True)
class CsvTable:
    """columns: their names, each once. rows: one text for each column, without space around it. lines: of each row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]

    def column(self, name: str) -> list[str]:
        """Return a column's cells."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


def parse_csv(data: bytes, *, source: str) -> CsvTable:
    """Return what a table says. Raises InvalidDataset naming the line that does not fit."""
    try:
        text = decode_text(data)
        separator, first = _separator(text)
        lines = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=True)
        read = [(lines.line_num, [composed(cell.strip()) for cell in line]) for line in lines]
    except (ValueError, csv.Error) as error:
        raise InvalidDataset(f"{source} cannot be read as CSV: {error}") from error
    filled = [(number, cells) for number, cells in read[first:] if any(cells)]
    if not filled:
        raise InvalidDataset(f"{source} is empty: it must have a line of names, and rows below it")
    (_, names), *rows = filled
    width = len(names)
    while width > 1 and not names[width - 1] and all(not "".join(cells[width - 1 :]) for _, cells in rows):
        width -= 1  # what a spreadsheet writes of columns that were emptied
    names = names[:width]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidDataset(f"{source} must have a line of names, each once: {twice[:40]!r} is there twice")
    if not rows:
        raise InvalidDataset(f"{source} has no rows below its line of names")
    for number, cells in rows:
        if len(cells) < width or any(cells[width:]):
            raise InvalidDataset(f"{source}, line {number} has {len(cells)} cells for {width} names")
    return CsvTable(tuple(names), tuple(tuple(cells[:width]) for _, cells in rows), tuple(number for number, _ in rows))


def _separator(text: str) -> tuple[str, int]:
    """Return what separates cells, and how many lines to leave out: most cells in the first line decide."""
    first = text.split("\n", 1)[0]
    if first.lower().startswith(SPREADSHEETS_LINE) and first[len(SPREADSHEETS_LINE) :] in SEPARATORS:
        return first[len(SPREADSHEETS_LINE) :], 1
    cells = {each: len(next(csv.reader([first], delimiter=each), [])) for each in SEPARATORS}
    return max(SEPARATORS, key=lambda each: cells[each]), 0
