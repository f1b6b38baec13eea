"""In-process quotas per owner: open event streams. An owner is an account, or an anonymous client's address.

Used from the event loop.
"""

from collections import Counter
from collections.abc import Hashable

from lethe.errors import AppError
from server.errors import Overloaded, RateLimited

RETRY_AFTER_S = 10


class Shares:
    """So many for each owner, and so many for all together; 0: any number. `what` ends the refusal's sentence."""

    def __init__(self, *, per_owner: int, in_all: int, what: str) -> None:
        self._per_owner = per_owner
        self._in_all = in_all
        self._what = what
        self._held: Counter[Hashable] = Counter()

    def find_refusal(self, owner: Hashable) -> AppError | None:
        """Return why `owner` gets no more: 429 for its own share, 503 for that of all; None if it does."""
        if self._per_owner and self._held[owner] >= self._per_owner:
            return RateLimited(f"You have {self._what} already; wait until they end", retry_after_s=RETRY_AFTER_S)
        if self._in_all and self._held.total() >= self._in_all:
            return Overloaded(f"The server has {self._what} already; try again shortly", retry_after_s=RETRY_AFTER_S)
        return None

    def take(self, owner: Hashable) -> None:
        self._held[owner] += 1

    def give_back(self, owner: Hashable) -> None:
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
