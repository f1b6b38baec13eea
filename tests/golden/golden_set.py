"""One set of golden values: its name and what recomputes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class GoldenSet:
    """recompute: from the inputs (keys without `in_`) to the values (keys without `out_`).

    float32: the values whose published computation is in float32, so that only its rounding can be asked for.
    p_values: the values that may be tiny, so that only a relative difference says something.
    not_computed: the values of the published programs that nothing of Lethe's computes.
    """

    recompute: Callable[[Arrays], Mapping[str, Any]]
    float32: frozenset[str] = frozenset()
    p_values: frozenset[str] = frozenset()
    not_computed: frozenset[str] = frozenset()
