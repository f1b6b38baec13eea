"""Whether a device's memory was the matter: torch says so in several ways."""

import torch

_PHRASES = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def ran_out_of_memory(error: BaseException) -> bool:
    """Say whether an error, or the one it came out of, is a lack of the device's memory.

    Only torch's own allocator raises OutOfMemoryError. Libraries and the driver raise a RuntimeError that says so, and
    the end of a graph whose capture broke off raises one more in its place.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            return True
        if isinstance(cause, RuntimeError) and any(phrase in str(cause) for phrase in _PHRASES):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
