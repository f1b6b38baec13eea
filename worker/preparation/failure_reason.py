"""What an organiser reads of an error of the host that broke a preparation off."""


def get_reason(error: Exception) -> str:
    """Return the error's kind, and for one of the system what it says, without the path.

    Other texts may quote what lies on the host; they stand in the worker's log.
    """
    kind = type(error).__name__
    if isinstance(error, OSError):
        return f"{kind}: {error.strerror or error}"
    return f"{kind}; the worker's log says more"
