"""Values that cost something to compute, kept for a time in proportion to the cost.

A value that took t seconds is used for 20 t seconds, at most ten: computing never takes more than a twentieth of a
process's time, and a small board is as good as never stale. One caller computes, the others meanwhile get the old one.
"""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger()

KEPT_PER_SECOND_OF_COST = 20.0
MAX_LIFETIME_S = 10.0
COSTLY_S = 0.02  # what a reader who has to wait for it would notice
MAX_KEYS = 256

T = TypeVar("T")


@dataclass
class _Kept(Generic[T]):
    value: T
    until: float
    cost_s: float
    size: int


def lifetime_s(cost_s: float) -> float:
    """Return how long a value is kept that took `cost_s` seconds to compute."""
    return min(MAX_LIFETIME_S, KEPT_PER_SECOND_OF_COST * cost_s)


class CostCache(Generic[T]):
    """Values by key, shared between threads, `max_size` of them by `size` (1 each without it); the oldest go first."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        size: Callable[[T], int] = lambda _: 1,
        max_size: int = MAX_KEYS,
    ) -> None:
        self._clock = clock
        self._size, self._max_size = size, max_size
        self._kept: dict[Hashable, _Kept[T]] = {}
        self._total = 0
        self._computing: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T], *, in_background: Callable[[], T] | None = None) -> T:
        """Return the kept value, or compute it. What `compute` raises is raised here and nothing is kept.

        in_background: computes the same in another thread, on means of its own. A costly value that became stale less
        than its lifetime ago is then shown once more to the one who noticed, and nobody waits.
        """
        kept = self._kept.get(key)
        if kept and self._clock() < kept.until:
            return kept.value
        computing = self._lock_for(key)
        if not computing.acquire(blocking=kept is None) and kept:
            return kept.value
        if kept and in_background and kept.cost_s >= COSTLY_S and self._clock() < kept.until + lifetime_s(kept.cost_s):
            threading.Thread(target=self._refresh, args=(key, in_background, computing), daemon=True).start()
            return kept.value
        try:
            kept = self._kept.get(key)
            if kept and self._clock() < kept.until:
                return kept.value
            return self._compute(key, compute)
        finally:
            self._release(key, computing)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._computing.clear()
            self._total = 0

    def _lock_for(self, key: Hashable) -> threading.Lock:
        with self._lock:
            return self._computing.setdefault(key, threading.Lock())

    def _release(self, key: Hashable, computing: threading.Lock) -> None:
        computing.release()
        with self._lock:
            if key not in self._kept:
                self._computing.pop(key, None)

    def _refresh(self, key: Hashable, compute: Callable[[], T], computing: threading.Lock) -> None:
        try:
            self._compute(key, compute)
        except Exception:  # whoever asks next computes it in the open, and sees why
            log.warning("value not refreshed", exc_info=True)
            with self._lock:
                self._drop(key)
        finally:
            self._release(key, computing)

    def _compute(self, key: Hashable, compute: Callable[[], T]) -> T:
        started = self._clock()
        value = compute()
        cost = self._clock() - started
        kept = _Kept(value, self._clock() + lifetime_s(cost), cost, self._size(value))
        with self._lock:
            self._drop(key)
            while self._kept and self._total + kept.size > self._max_size:
                oldest = next(iter(self._kept))
                self._drop(oldest)
                self._computing.pop(oldest, None)  # who holds it lets it go all the same
            if kept.size <= self._max_size:
                self._kept[key] = kept
                self._total += kept.size
        return value

    def _drop(self, key: Hashable) -> None:
        dropped = self._kept.pop(key, None)
        if dropped:
            self._total -= dropped.size
