"""Limits how often a job runs, and to at most half of the time."""

import time


class Pace:
    """Of messages that ask for the same, only the first within `every_s` seconds is followed."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._began = self._next = float("-inf")

    def allows(self) -> bool:
        """Return whether it is time again; if so, it is that no more."""
        at = time.monotonic()
        if at < self._next:
            return False
        self._began, self._next = at, at + self._every_s
        return True

    def rest(self) -> None:
        """Say that it is done. What took longer than its turn leaves as much time to other work as it took."""
        at = time.monotonic()
        self._next = max(self._next, at + (at - self._began))
