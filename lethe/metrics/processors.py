"""How metrics use the processors: one thread for small fits, several models at once for long ones."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS starts no threads: fits of a few numbers wait for them many times as long."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  looks for libraries, needed by attacks alone

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits


def map_models(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return function(item) of every item, in their order, with as many at a time as there are processors.

    function: releases the interpreter lock in its long part, and shares no state between calls.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "lethe-metrics") as threads:
        return list(threads.map(function, items))
