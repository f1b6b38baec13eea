"""Whether others use this process's device: what a reference computation takes now, beside the least it ever took.

A run on a GPU waits for the device, and nothing says whether for its own computing or for another's. So a run that was
too long by the clock is not its participant's fault where the device, right afterwards, is slow for this process, too.
"""

import time

import torch

SHARED = 1.5  # so many times as long as it ever took: others are at work on the device
REPEATS, SIDE = 20, 2048


class DevicePace:
    """Keeps the least time of the reference computation."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._least_s = float("inf")

    def look(self) -> float:
        """Compute, and return how many times as long as ever before it took: about 1 where nobody else is there."""
        took_s = self._reference_s()
        self._least_s = min(self._least_s, took_s)
        return took_s / self._least_s

    def _reference_s(self) -> float:
        matrix = torch.ones((SIDE, SIDE), device=self._device)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(REPEATS):
            torch.mm(matrix, matrix)
        torch.cuda.synchronize()
        return time.perf_counter() - began
