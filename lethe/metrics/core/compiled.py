"""Compile a numeric loop at its first call and keep the machine code between processes."""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return `function`, compiled by numba when it is first called.

    Importing a metric so costs no import of numba. Arithmetic stays IEEE (no fastmath) and divides as numpy does.
    """

    @cache
    def loop() -> Callable[Arguments, Result]:
        import numba  # noqa: PLC0415  half a second that the catalogue need not pay

        try:
            made = numba.njit(function, cache=True, error_model="numpy", nogil=True)
        except RuntimeError:  # numba found no writable place for its cache
            made = numba.njit(function, error_model="numpy", nogil=True)
        return cast(Callable[Arguments, Result], made)

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return loop()(*args, **kwargs)

    return call
