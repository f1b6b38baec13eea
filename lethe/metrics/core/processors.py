"""How metrics use the processors: one thread for small fits, several models or examples at once for long loops."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

PARTS_PER_PROCESSOR = 4  # so that no processor waits long for the last part
Item = TypeVar("Item")
Result = TypeVar("Result")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS starts no threads: fits of a few numbers wait for them many times as long."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  looks for libraries, needed by attacks alone

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return function(item) of every item, in their order, with as many at a time as there are processors.

    function: releases the interpreter lock in its long part, and shares no state between calls.
    """
    with ThreadPoolExecutor(_processors(), "lethe-metrics") as threads:
        return list(threads.map(function, items))


def slices(size: int) -> list[slice]:
    """Return parts of `size` rows in their order, a few per processor, for `in_threads`; none is empty."""
    step = max(1, -(-size // (PARTS_PER_PROCESSOR * _processors())))
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def _processors() -> int:
    return len(os.sched_getaffinity(0))
