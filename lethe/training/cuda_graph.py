"""Capturing a training step as a CUDA graph, or saying why that cannot be.

What makes the host wait for the device cannot be captured (`.item()`, a branch on a tensor's value, copies to the
host). Once the device has refused a capture its rest is lost, and releases of torch before the fixing of
CUDAGraph::capture_end leave the allocator as if it still ran. So a step is rehearsed first, outside any capture.
"""

import contextlib
import traceback
import warnings
from collections.abc import Callable, Iterator

import torch

from lethe.device.memory import causes, let_go_of_tensors, ran_out_of_memory

_NETWORK_SOURCE = "<network source>"  # the file that lethe/networks/builders.py names for an organiser's text
_WAITS = "synchronizing CUDA operation"  # how torch's check of waiting calls says what it found


class StepRefused(Exception):
    """A step that cannot be captured; its text says why, and where in an organiser's own network."""


def rehearse(step: Callable[[], None]) -> None:
    """Make the step once, on the device. Raises StepRefused where the host waits for the device in it."""
    try:
        with _waiting_is_an_error():
            step()
    except RuntimeError as error:
        if _WAITS not in str(error):
            raise
        raise _refusal(error) from None


def captured(step: Callable[[], None], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """Return the step as a graph. Raises StepRefused; what was computed on the host by then is not undone.

    A lack of the device's memory is raised as it is: a smaller group may have enough.
    """
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            step()
    except Exception as error:  # a network may fail in any way that it does not fail in outside
        with contextlib.suppress(RuntimeError):  # newer releases have ended it by then
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        if ran_out_of_memory(error):
            raise
        raise _refusal(error) from None
    return graph


@contextlib.contextmanager
def _waiting_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error")
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: str | int) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # that it does not know every call
        torch.cuda.set_sync_debug_mode(mode)


def _refusal(error: Exception) -> StepRefused:
    """Return the refusal that the first of an error's causes asks for, and forget where they were raised."""
    *_, first = causes(error)
    lines = [frame.lineno for frame in traceback.extract_tb(first.__traceback__) if frame.filename == _NETWORK_SOURCE]
    place = f" (line {lines[-1]} of the network's source)" if lines else ""
    let_go_of_tensors(error)
    text = str(first).strip().partition("\n")[0]
    return StepRefused(f"{type(first).__name__}: {text}{place}")
