"""Limits on how often somebody may do something, kept in this process: n web processes let n times as much through.

They slow guessing and flooding down; what keeps a password is argon2. Behind a proxy, start uvicorn with
--proxy-headers and --forwarded-allow-ips, or every client has the proxy's address.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable

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

    def check(self, key: Hashable) -> None:
        """Raise RateLimited, saying when to come back, if `key` has had its events."""
        with self._lock:
            self._check(key)

    def count(self, key: Hashable) -> None:
        """Remember one event of `key`."""
        with self._lock:
            self._count(key)

    def take(self, key: Hashable) -> None:
        """Remember one event of `key`, or raise RateLimited if it has had its events."""
        with self._lock:
            self._check(key)
            self._count(key)

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
        events = self._events.get(key, deque())
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


def duration(seconds: float) -> str:
    """Write a span of time for a sentence."""
    return f"{seconds:g} s" if seconds < 120 else f"{round(seconds / 60)} min"


per_name = Throttle(10, window_s=900, what="wrong passwords")  # key: (client, name)
per_account = Throttle(10, window_s=900, what="wrong passwords")  # key: account, which is logged in
per_client = Throttle(100, window_s=900, what="wrong passwords")  # key: client
reset_requests = Throttle(20, window_s=3600, what="requests for a new password")  # key: client
reset_links = Throttle(3, window_s=3600, what="links for a new password")  # key: account
