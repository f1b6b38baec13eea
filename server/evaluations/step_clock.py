"""When the number of done runs that a team sees last rose: from there the rest is estimated, and counted down.

Estimated from now, the time left would rise until the next step is seen, and fall at it. A process keeps what it saw
itself, so that nothing about single runs is stored or told; where it did not see the step, it takes now for it.
"""

import threading
from collections import OrderedDict

KEPT = 4096  # evaluations

_seen: OrderedDict[str, tuple[int, float]] = OrderedDict()
_lock = threading.Lock()


def elapsed_at_step(key: str, *, done: int, elapsed_s: float) -> float:
    """Return how many seconds had passed when `done` was first seen of the evaluation `key`."""
    with _lock:
        known = _seen.get(key)
        if known is None or known[0] != done or known[1] > elapsed_s:
            _seen[key] = known = (done, elapsed_s)
        _seen.move_to_end(key)
        while len(_seen) > KEPT:
            _seen.popitem(last=False)
        return known[1]
