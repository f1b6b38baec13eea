"""How a job ends: what its own error, the host's and the end of its lease lead to, and what organisers read of it."""

import errno
from collections.abc import Iterator

import pytest

from lethe.errors import HostFault, InvalidInput
from worker.host import graceful_shutdown
from worker.jobs import Job, Stopped, describe, run_job


class Noted(Job[str]):
    """Notes which end was stored. error: raised where `where` says."""

    def __init__(self, where: str = "", error: Exception | None = None, *, counts: bool = True) -> None:
        self.where, self.error, self.counts, self.ends = where, error, counts, list[str]()

    def _end(self, name: str) -> bool:
        self.ends.append(name)
        if self.where == name and self.error is not None:
            raise self.error
        return self.counts

    def run(self) -> str:
        self._end("run")
        return "result"

    def on_done(self, result: str) -> bool:
        return self._end("done")

    def on_failed(self, error: InvalidInput) -> bool:
        return self._end("failed")

    def give_back(self, reason: str) -> bool:
        return self._end("given-back")

    def hand_over(self) -> bool:
        return self._end("handed-over")


@pytest.fixture(autouse=True)
def _no_stop() -> Iterator[None]:
    yield
    graceful_shutdown.reset()


@pytest.mark.parametrize(
    ("job", "end", "stored"),
    [
        (Noted(), "done", ["run", "done"]),
        (Noted(counts=False), "lost", ["run", "done"]),
        (Noted("run", InvalidInput("too few")), "failed", ["run", "failed"]),
        (Noted("run", HostFault("no disk")), "given-back", ["run", "given-back"]),
        (Noted("done", HostFault("no disk")), "given-back", ["run", "done", "given-back"]),
        (Noted("run", Stopped()), "lost", ["run"]),
    ],
)
def test_every_end_is_stored(job: Noted, end: str, stored: list[str]) -> None:
    assert run_job(job) == end
    assert job.ends == stored


def test_stopping_worker_hands_its_job_over() -> None:
    graceful_shutdown.begin(give_back_after_s=0)
    assert run_job(Noted("run", Stopped())) == "handed-over"


def test_unforeseen_error_is_raised_after_the_job_is_given_back() -> None:
    job = Noted("run", RuntimeError("unforeseen"))
    with pytest.raises(RuntimeError, match="unforeseen"):
        run_job(job)
    assert job.ends == ["run", "given-back"]


def test_error_of_the_system_is_told_without_its_path() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/var/lib/lethe/secret-name")
    assert describe(error) == "OSError: No space left on device"


def test_other_text_is_not_told() -> None:
    assert "hunter2" not in describe(ValueError("invalid literal: 'hunter2'"))
