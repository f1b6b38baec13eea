"""One element of torch.linspace in float32, as computed on processors with a fused multiply-add."""

import numpy as np

from lethe.metrics.core.compiled import jitted


@jitted
def fused_multiply_add(factor: np.float32, count: np.float32, start: np.float32) -> np.float32:
    """Return factor * count + start rounded once to float32.

    The product of two float32 is exact in float64. The sum is rounded to float64 and then to float32; those two
    roundings differ from one only where the float64 sum is inexact and falls on the middle of two float32.
    """
    product = np.float64(factor) * np.float64(count)
    addend = np.float64(start)
    total = product + addend
    result = np.float32(total)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    if error == 0.0:
        return result
    gap = total - np.float64(result)
    towards = np.float32(np.inf) if gap > 0.0 else np.float32(-np.inf)
    other = np.nextafter(result, towards)
    if gap == 0.0 or gap != np.float64(other) - total:
        return result
    return other if (gap > 0.0) == (error > 0.0) else result


@jitted
def float32_linspace_at(start: np.float32, stop: np.float32, count: int, position: int) -> np.float32:
    """Return element `position` of torch.linspace(start, stop, count) in float32.

    The first half is counted up from the start, the second half down from the stop. Source: torch's CPU kernel,
    whose compiler fuses the multiplication and the addition wherever the processor can.
    """
    if count == 1:
        return start
    step = np.float32(stop - start) / np.float32(count - 1)
    if position < count // 2:
        return fused_multiply_add(step, np.float32(position), start)
    return fused_multiply_add(-step, np.float32(count - 1 - position), stop)
