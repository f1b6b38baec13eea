"""What of a submission is not run, and why."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class LeftOut:
    """Lines (from 1) of a notebook's code cell (from 1; 0: of a plain file) that are not run, and why."""

    cell: int
    first_line: int
    last_line: int
    reason: str

    def as_data(self) -> dict[str, int | str]:
        """Return it as plain values."""
        return asdict(self)
