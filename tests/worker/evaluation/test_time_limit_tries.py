"""A run that used up its processor time is run again: other work on the machine adds to what it takes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.errors import HostFault
from lethe.runtime.error_classes import Blame
from sandbox.frame_reader import NotebookRun
from sandbox.run_request import RunRequest
from sandbox.verdict import Verdict
from worker.evaluation import shard_pipeline
from worker.evaluation.shard_pipeline import TRIES_WITHIN_TIME
from worker.host.backoff import DevicePace

OVER = Verdict(outcome="failed", fault=Blame.PARTICIPANT, error_class="time-limit", message="too long")
GOOD = Verdict(outcome="weights", fault=Blame.NONE)
SLOW_CLOCK = replace(OVER, error_class="timeout")
REQUEST = RunRequest(code_dir=Path("code"), seed=7)


def run(
    verdicts: list[Verdict], request: RunRequest = REQUEST, *, device: str = "cpu", paces: Sequence[float] = ()
) -> tuple[Verdict, list[RunRequest]]:
    asked: list[RunRequest] = []

    def run_in_sandbox(one: RunRequest, **_: object) -> Any:
        asked.append(one)
        return SimpleNamespace(verdict=verdicts[len(asked) - 1])

    sandbox, heart = SimpleNamespace(run=run_in_sandbox), SimpleNamespace(stopped=False)
    context = SimpleNamespace(
        drop_sandbox=lambda *_: None,
        settings=SimpleNamespace(worker_device=device),
        pace=SimpleNamespace(look=partial(next, iter(paces))),
    )
    key: Any = (Path("data"), None)
    found = shard_pipeline._run_one(context, sandbox, request, heart=heart, key=key)  # type: ignore[arg-type]
    return found.verdict, asked


@pytest.mark.parametrize("failed_first", range(TRIES_WITHIN_TIME))
def test_run_counts_that_ends_within_its_time(failed_first: int) -> None:
    verdict, asked = run([*[OVER] * failed_first, GOOD])
    assert verdict == GOOD
    assert asked == [REQUEST] * (failed_first + 1)


def test_run_that_is_over_its_time_each_time_fails() -> None:
    verdict, asked = run([OVER] * (TRIES_WITHIN_TIME + 1))
    assert (verdict, len(asked)) == (OVER, TRIES_WITHIN_TIME)


def test_other_ends_and_complete_notebooks_are_not_repeated() -> None:
    assert len(run([SLOW_CLOCK, GOOD])[1]) == 1
    whole = replace(REQUEST, notebook=NotebookRun(4, lambda *_: None))
    assert len(run([OVER, GOOD], whole)[1]) == 1


def test_run_on_a_gpu_is_repeated_where_it_was_too_long_by_the_clock() -> None:
    assert run([SLOW_CLOCK, GOOD], device="cuda", paces=[1.0]) == (GOOD, [REQUEST] * 2)
    verdict, asked = run([SLOW_CLOCK] * 3, device="cuda", paces=[1.0, 1.1])
    assert (verdict, len(asked)) == (SLOW_CLOCK, TRIES_WITHIN_TIME)


@pytest.mark.parametrize("request_", [REQUEST, replace(REQUEST, notebook=NotebookRun(4, lambda *_: None))])
def test_run_beside_others_on_the_device_is_the_hosts(request_: RunRequest) -> None:
    with pytest.raises(HostFault, match=r"others used the device: 2\.0 times as slow"):
        run([SLOW_CLOCK] * 3, request_, device="cuda", paces=[1.0, 2.0])


def test_pace_is_what_the_reference_takes_beside_its_least(monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([0.2, 0.1, 0.3])
    monkeypatch.setattr(DevicePace, "_reference_s", lambda _self: next(took))
    pace = DevicePace("cuda")
    assert [pace.look(), pace.look(), pytest.approx(pace.look())] == [1.0, 1.0, 3.0]
