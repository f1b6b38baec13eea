"""Lines of CSV files that a spreadsheet shows and does not run."""

import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

STARTS = frozenset("=+-@")
# Signs with the shape of one of these that NFKC keeps.
LOOK_ALIKES = str.maketrans("−‐‑‒–—―⁃˗➖꞊═⹀᐀➕᛭", "----------====++")


def csv_lines(rows: Iterable[Sequence[object]], *, line_end: str = "\r\n") -> Iterator[str]:
    """Yield one line for each row, a float with all its digits.

    Every text is quoted, so that no separator in it (also not the semicolon of some countries) begins another cell.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_NONNUMERIC, lineterminator=line_end)
    for row in rows:
        writer.writerow([_shown(value) for value in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _shown(value: object) -> object:
    """Return a cell's value; text that begins a formula has an apostrophe before it, which says that it is text."""
    return f"'{value}" if isinstance(value, str) and _begins_formula(value) else value


def _begins_formula(text: str) -> bool:
    """Return whether a spreadsheet may run `text`: a sign in any width, also after what is not visible."""
    if text[:1] in ("\t", "\r", "\n"):
        return True
    plain = unicodedata.normalize("NFKC", text).translate(LOOK_ALIKES)
    return next((letter for letter in plain if not _is_invisible(letter)), "") in STARTS


def _is_invisible(letter: str) -> bool:
    return letter.isspace() or unicodedata.category(letter) in ("Cc", "Cf")
