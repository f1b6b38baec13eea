"""Whether an error means that the device ran out of memory: torch reports it in several ways."""

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_PHRASES = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # also said of a handle for which there is no space
    "CUDNN_STATUS_ALLOC_FAILED",
)


def ran_out_of_memory(error: BaseException) -> bool:
    """Say whether an error, or the one it came out of, is a lack of the device's memory.

    Only torch's own allocator raises OutOfMemoryError. Libraries and the driver raise a RuntimeError that says so, and
    the end of a graph whose capture broke off raises one more in its place.
    """
    return any(
        isinstance(cause, torch.OutOfMemoryError)
        or (isinstance(cause, RuntimeError) and any(phrase in str(cause) for phrase in _PHRASES))
        for cause in causes(error)
    )


def let_go_of_tensors(error: BaseException) -> None:
    """Forget where an error and those it came out of were raised: these calls keep their tensors alive with it."""
    for cause in causes(error):
        cause.__traceback__ = None


@contextmanager
def memory_given_back(device: torch.device) -> Iterator[None]:
    """Give the device what the block has used of its memory, and torch would keep for its own next use.

    A worker that trained models runs submissions next, in other processes, on the same device. An error on its way out
    says where it was raised, and has nothing left of what those calls held.
    """
    try:
        yield
    except BaseException as error:
        for cause in causes(error):
            traceback.clear_frames(cause.__traceback__)
        raise
    finally:
        if device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the one it came out of, and so on to the first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
