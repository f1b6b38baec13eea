"""What of the code is not run, listed for its author."""

from collections.abc import Sequence

from lethe.cli.context import console
from lethe.client.api import JsonObject


def print_notes(notes: Sequence[str]) -> None:
    """Print what may make it fail."""
    for note in notes:
        console.print(f"Note: {note}", style="yellow", markup=False, highlight=False)


def print_left_out(parts: Sequence[JsonObject]) -> None:
    """Print cells, lines and reasons. parts: as the API and `EntryPoint.as_data` have them."""
    if not parts:
        return
    console.print("Not run:")
    for part in parts:
        first, last = part["first_line"], part["last_line"]
        lines = f"lines {first} to {last}" if last > first else f"line {first}"
        where = f"cell {part['cell']}, {lines}" if part["cell"] else lines
        console.print(f"  {where}: {part['reason']}", markup=False, highlight=False)
