"""What can go wrong with the boundary itself; what a participant does wrong is a verdict, not an error."""


class BackendUnavailable(RuntimeError):
    """This back-end cannot run here; the message says how to make it."""


class InvalidRequest(ValueError):
    """A sandbox or a run was asked for in a way that cannot be; a mistake in the calling code."""


class ZygoteFailed(RuntimeError):
    """The zygote did not start, or is gone: the host's fault. The message carries its last words."""


class RunWillNotDie(RuntimeError):
    """A killed run is still there: the host's fault, and the sandbox is given up."""


class MachineTooBusy(RuntimeError):
    """The machine took more time from a confined process than that may take: the host's fault."""


class NoFreeSlot(BackendUnavailable):
    """Every user slot is in use on this host."""
