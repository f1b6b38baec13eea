"""A run that used up its processor time is run again: other work on the machine adds to what it takes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.runtime.error_classes import Blame
from sandbox.notebook_stream import NotebookRun
from sandbox.run_request import RunRequest
from sandbox.verdict import Verdict
from worker.evaluation import shard_pipeline
from worker.evaluation.shard_pipeline import TRIES_WITHIN_TIME

OVER = Verdict(outcome="failed", fault=Blame.PARTICIPANT, error_class="time-limit", message="too long")
GOOD = Verdict(outcome="weights", fault=Blame.NONE)
SLOW_CLOCK = replace(OVER, error_class="timeout")
REQUEST = RunRequest(code_dir=Path("code"), seed=7)


def run(verdicts: list[Verdict], request: RunRequest = REQUEST) -> tuple[Verdict, list[RunRequest]]:
    asked: list[RunRequest] = []

    def run_in_sandbox(one: RunRequest, **_: object) -> Any:
        asked.append(one)
        return SimpleNamespace(verdict=verdicts[len(asked) - 1])

    sandbox, heart = SimpleNamespace(run=run_in_sandbox), SimpleNamespace(stopped=False)
    context = SimpleNamespace(drop_sandbox=lambda *_: None)
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
