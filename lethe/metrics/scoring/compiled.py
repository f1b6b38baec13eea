"""Compile a numeric loop once and keep the machine code between processes."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(function: Loop) -> Loop:
    """Return `function` compiled by numba at its first call.

    Compilation keeps IEEE arithmetic (no fastmath, so no fused multiply-add and no reordering), divides as numpy
    does, and caches on disk; where no folder can be written the loop is compiled again in every process.
    """
    try:
        loop = numba.njit(function, cache=True, error_model="numpy", nogil=True)
    except RuntimeError:  # numba found no writable place for its cache
        loop = numba.njit(function, error_model="numpy", nogil=True)
    return cast(Loop, loop)
