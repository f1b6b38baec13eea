"""Limits on how often somebody may do something, kept in this process: n web processes let n times as much through.

They slow guessing and flooding down; what keeps a password is argon2. Behind a proxy, LETHE_PROXIES has to name it, or
every client has the proxy's address. What takes time is counted before it is done, or many at once would all be let in.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import lru_cache

from server.datetime_format import duration
from server.errors import RateLimited

MAX_KEYS = 100_000


class Throttle:
    """At most `limit` events of one key within `window_s` seconds. `what` names them in the refusal."""

    def __init__(self, limit: int, *, window_s: float, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.window_s = window_s
        self.what = what
        self._clock = clock
        self._events: dict[Hashable, deque[float]] = {}
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> None:
        """Remember one event of `key`, or raise RateLimited if it has had its events."""
        with self._lock:
            self._check(key)
            self._count(key)

    def give_back(self, key: Hashable) -> None:
        """Remove the last event of `key`, which does not count after all."""
        with self._lock:
            events = self._events.get(key)
            if events:
                events.pop()
            if not events:
                self._events.pop(key, None)

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._events.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._events.clear()

    def _check(self, key: Hashable) -> None:
        events = self._recent(key)
        if len(events) >= self.limit:
            wait_s = int(events[0] + self.window_s - self._clock()) + 1
            raise RateLimited(
                f"{self.limit} {self.what} within {duration(self.window_s)}; try again in {duration(wait_s)}",
                retry_after_s=wait_s,
            )

    def _count(self, key: Hashable) -> None:
        if len(self._events) >= MAX_KEYS:
            self._drop_stale()
        self._events.setdefault(key, deque(maxlen=self.limit)).append(self._clock())

    def _recent(self, key: Hashable) -> deque[float]:
        events = self._events.get(key) or deque()
        while events and events[0] <= self._clock() - self.window_s:
            events.popleft()
        if not events:
            self._events.pop(key, None)
        return events

    def _drop_stale(self) -> None:
        oldest = self._clock() - self.window_s
        self._events = {key: events for key, events in self._events.items() if events[-1] > oldest}
        if len(self._events) >= MAX_KEYS:
            self._events.clear()


def take_registration(limit: int, client: str) -> None:
    """Count one registration of a client. Raises RateLimited. limit: in an hour; 0: any number."""
    if limit:
        registrations(limit).take(client)


@lru_cache
def registrations(limit: int) -> Throttle:
    """Return this process's count of accounts registered. Key: client."""
    return Throttle(limit, window_s=3600, what="accounts were registered from this address")


per_name = Throttle(10, window_s=900, what="wrong passwords")  # key: (client, name)
per_account = Throttle(10, window_s=900, what="wrong passwords")  # key: account, which is logged in
per_code = Throttle(5, window_s=900, what="wrong codes")  # key: account, whose password was right
per_client = Throttle(100, window_s=900, what="wrong passwords")  # key: client
reset_requests = Throttle(20, window_s=3600, what="requests for a new password")  # key: client
confirmations = Throttle(3, window_s=3600, what="letters to this address")  # key: address
reset_links = Throttle(3, window_s=3600, what="links for a new password")  # key: account
