"""Lets a thing happen at most every so often."""

import time


class Pace:
    """Of messages that ask for the same, only the first within `every_s` seconds is followed."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last: float | None = None

    def allows(self) -> bool:
        """Return whether it is time again; if so, it is that no more."""
        at = time.monotonic()
        if self._last is not None and at < self._last + self._every_s:
            return False
        self._last = at
        return True
