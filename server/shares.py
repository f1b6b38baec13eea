"""How much of something everybody holds at this moment in this process: bytes of bodies, event streams.

An owner is an account, or the address of a client that nobody is known of. Used from the event loop.
"""

from collections import Counter
from collections.abc import Hashable

from lethe.errors import AppError
from server.errors import Overloaded, RateLimited

RETRY_AFTER_S = 10


class Shares:
    """So much for each owner, and so much for all together; 0: any amount. `what` ends the refusal's sentence."""

    def __init__(self, *, per_owner: int, in_all: int, what: str) -> None:
        self._per_owner = per_owner
        self._in_all = in_all
        self._what = what
        self._held: Counter[Hashable] = Counter()
        self.total = 0

    def find_refusal(self, owner: Hashable, amount: int, *, of_this: int = 0) -> AppError | None:
        """Return why `owner` gets no more: 429 for its own share, 503 for that of all; None if it does.

        of_this: what the same request holds already. A request that is alone is not held to the owner's share.
        """
        others = self._held[owner] - of_this
        if self._per_owner and others and others + of_this + amount > self._per_owner:
            return RateLimited(f"You have {self._what} already; wait until they end", retry_after_s=RETRY_AFTER_S)
        if self._in_all and self.total + amount > self._in_all:
            return Overloaded(f"The server has {self._what} already; try again shortly", retry_after_s=RETRY_AFTER_S)
        return None

    def take(self, owner: Hashable, amount: int) -> None:
        self._held[owner] += amount
        self.total += amount

    def give_back(self, owner: Hashable, amount: int) -> None:
        self._held[owner] -= amount
        self.total -= amount
        if not self._held[owner]:
            del self._held[owner]
