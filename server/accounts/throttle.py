"""A limit on failed log-ins, kept in this process: with n web processes, n times as many attempts get through.

It slows guessing down; what keeps a password is argon2. Behind a proxy, start uvicorn with --proxy-headers and
--forwarded-allow-ips, or every client has the proxy's address.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable

from server.errors import RateLimited

MAX_KEYS = 100_000


class Throttle:
    """At most `limit` events of one key within `window_s` seconds."""

    def __init__(self, limit: int, *, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.window_s = window_s
        self._clock = clock
        self._events: dict[Hashable, deque[float]] = {}
        self._lock = threading.Lock()

    def check(self, key: Hashable) -> None:
        """Raise RateLimited, saying when to come back, if `key` has had its events."""
        with self._lock:
            events = self._recent(key)
            if len(events) >= self.limit:
                wait_s = int(events[0] + self.window_s - self._clock()) + 1
                raise RateLimited(
                    f"{self.limit} attempts within {self.window_s:g} s failed; try again in {wait_s} s",
                    retry_after_s=wait_s,
                )

    def count(self, key: Hashable) -> None:
        """Remember one event of `key`."""
        with self._lock:
            if len(self._events) >= MAX_KEYS:
                self._drop_stale()
            self._events.setdefault(key, deque(maxlen=self.limit)).append(self._clock())

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._events.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._events.clear()

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


per_name = Throttle(10, window_s=900)  # key: (client, name)
per_client = Throttle(100, window_s=900)  # key: client
