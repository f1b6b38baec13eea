"""Leased jobs: each is run to one of its ends, and that end is stored. Written once for every kind of job."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from lethe.errors import AppError, HostFault
from worker.host import graceful_shutdown

T = TypeVar("T")


class Stopped(Exception):
    """The lease is lost, the work cancelled or its time up, or the worker must stop."""


class Job(ABC, Generic[T]):
    """Work that this process holds; each end returns whether it counts. failures: errors of whose work it is."""

    failures: ClassVar[tuple[type[Exception], ...]] = (AppError,)

    @abstractmethod
    def run(self) -> T: ...

    @abstractmethod
    def on_done(self, result: T) -> bool: ...

    @abstractmethod
    def on_failed(self, error: Any) -> bool: ...

    @abstractmethod
    def give_back(self, reason: str) -> bool:
        """Leave the job to others because this host could not do it."""

    @abstractmethod
    def hand_over(self) -> bool:
        """Leave the job to others because this worker stops."""

    def on_lease_lost(self) -> str:
        """Return how a job ended that was stopped from outside."""
        return "lost"


def run_job(job: Job[T]) -> str:
    """Run a job and store how it ended. Return that end's name."""
    try:
        end, counts = "done", job.on_done(job.run())
    except Stopped:
        if not graceful_shutdown.is_over():
            return job.on_lease_lost()
        end, counts = "handed-over", job.hand_over()
    except HostFault as error:  # first: it is an AppError, too
        end, counts = "given-back", job.give_back(error.detail)
    except job.failures as error:
        end, counts = "failed", job.on_failed(error)
    except Exception as error:
        job.give_back(describe(error))
        raise
    return end if counts else "lost"


def describe(error: Exception) -> str:
    """Return the error's kind, and of a system's what it says, without paths: other texts stay in the log."""
    kind = type(error).__name__
    if isinstance(error, OSError):
        return f"{kind}: {error.strerror or error}"
    return f"{kind}; the worker's log says more"
