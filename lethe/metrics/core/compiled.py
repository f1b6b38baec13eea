"""Compile numeric loops, and keep the machine code between processes."""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar, cast

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
