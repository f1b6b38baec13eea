"""Graceful shutdown: a stopping worker notifies its processes, which return their shards instead of losing them.

The flag lies in memory that the pool's processes share with the one that forked them.
"""

import mmap
import struct
import time

_until = mmap.mmap(-1, struct.calcsize("d"))  # when to give back, on the clock all processes share; 0: never


def begin(*, give_back_after_s: float) -> None:
    """Take nothing new from now on, and give back what is not done in time."""
    _until[:] = struct.pack("d", time.monotonic() + give_back_after_s)


def reset() -> None:
    """Clear a stop request."""
    _until[:] = struct.pack("d", 0.0)


def is_asked() -> bool:
    """Return whether the worker takes nothing new."""
    return _deadline() > 0


def is_over() -> bool:
    """Return whether what still runs must be given back now."""
    deadline = _deadline()
    return 0 < deadline <= time.monotonic()


def _deadline() -> float:
    value: float = struct.unpack("d", _until[:])[0]
    return value
