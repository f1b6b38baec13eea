"""How numeric loops are compiled and use the processors; the machine code is kept between processes."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

PARTS_PER_PROCESSOR = 4  # so that no processor waits long for the last part
Item = TypeVar("Item")
Made = TypeVar("Made")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS starts no threads: fits of a few numbers wait for them many times as long."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  looks for libraries, needed by attacks alone

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits


def in_threads(function: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
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


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Loop = TypeVar("Loop", bound=Callable[..., object])


def jitted(function: Loop) -> Loop:
    """Return `function`, compiled by numba at its first call, for loops that call each other.

    Compilation keeps IEEE arithmetic (no fastmath, so no fused multiply-add and no reordering), divides as numpy
    does, and caches on disk; where no folder can be written the loop is compiled again in every process.
    """
    import numba  # noqa: PLC0415  half a second that the catalogue need not pay

    try:
        loop = numba.njit(function, cache=True, error_model="numpy", nogil=True)
    except RuntimeError:  # numba found no writable place for its cache
        loop = numba.njit(function, error_model="numpy", nogil=True)
    return cast(Loop, loop)


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return `function`, `jitted` when it is first called: importing a metric costs no import of numba."""
    loop = cache(lambda: jitted(function))

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return loop()(*args, **kwargs)

    return call
