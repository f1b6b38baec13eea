"""What the machine takes from a run is not the run's: beside it, other work on its one processor."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lethe.runtime.error_classes import Blame
from sandbox.launcher import Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from sandbox.supervisor import Observed, RunWatch
from tests.sandbox.conftest import TEST_POLICY, write_submission
from tests.support.processes import descendants

WALL_S = 1.0
LOOP = "while True: pass"
WORK = ("until = time.process_time() + 0.25", "while time.process_time() < until: pass")
HEAD = "import os, time\n\n\ndef unlearning(net, retain, forget, validation):\n"
Run = Callable[..., RunResult]


@pytest.fixture(scope="module")
def run(split: Path, stage: Path) -> Iterator[Run]:
    """Run a body with a second of wall time, on the first processor of this machine."""
    processor = min(os.sched_getaffinity(0))
    policy = replace(TEST_POLICY, wall_time_s=WALL_S, idle_time_s=None, cpus=(processor,))
    with Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=policy)).start() as sandbox:
        yield lambda *lines: _run(sandbox, stage, lines)


def source(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


def _run(sandbox: Sandbox, stage: Path, lines: tuple[str, ...]) -> RunResult:
    folder = write_submission(stage, f"run-{time.monotonic_ns()}", source(*lines))
    return sandbox.run(RunRequest(code_dir=folder))


@contextmanager
def busy_processor(n: int) -> Iterator[None]:
    """Keep the run's processor busy with as much other work, each in a session of its own, as the run is."""
    processor = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{processor}}})\n{LOOP}"
    others = [subprocess.Popen([sys.executable, "-c", code], start_new_session=True) for _ in range(n)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_starved_run_gets_its_weights(run: Run) -> None:
    with busy_processor(6):
        began = time.monotonic()
        result = run(*WORK)
        took_s = time.monotonic() - began
    assert result.verdict.outcome == "weights", result.facts
    assert took_s > WALL_S, "it was not starved"
    assert result.wall_time_s < WALL_S


def test_run_that_the_machine_starves_for_long_is_the_hosts(run: Run) -> None:
    with busy_processor(12):
        result = run(LOOP)
    assert (result.verdict.error_class, result.verdict.fault) == ("host-fault", Blame.HOST)
    assert "too busy" in result.facts.host_error


@pytest.mark.parametrize(
    "lines",
    [
        ("import threading", "lock = threading.Lock()", "lock.acquire()", "lock.acquire()"),
        ("child = os.fork() or os.kill(os.getpid(), 19)", "os.waitpid(child, 0)"),
        ("while True: time.sleep(0.05)",),
    ],
)
def test_waiting_of_a_runs_own_is_its_own_on_a_busy_machine(run: Run, lines: tuple[str, ...]) -> None:
    with busy_processor(2):
        result = run(*lines)
    assert (result.verdict.error_class, result.verdict.fault) == ("timeout", Blame.PARTICIPANT), result.facts


def test_threads_that_wait_for_each_other_are_the_runs_own(run: Run) -> None:
    """Sixteen on one processor: each waits for it nearly always, and it computes all the time."""
    result = run("for _ in range(4): os.fork()", LOOP)
    assert result.verdict.fault is Blame.PARTICIPANT, result.facts
    assert result.wall_time_s <= 2 * WALL_S + 1


def test_run_that_was_stopped_from_outside_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = RunWatch.watch

    def watch(self: RunWatch, *, keeps: bool = False) -> Observed:
        threading.Timer(0.25, self._process.send, [signal.SIGSTOP]).start()
        return watched(self, keeps=keeps)

    monkeypatch.setattr(RunWatch, "watch", watch)
    assert run("time.sleep(0.75)").verdict.outcome == "weights"


FROZEN = """
import sys, threading, os, time
from pathlib import Path
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import RunPolicy

policy = RunPolicy(wall_time_s=2, idle_time_s=1, memory_mib=256, processes=16, scratch_mib=16)
stage = Path(sys.argv[2])
with Launcher(SandboxSpec(data_dir=Path(sys.argv[1]), stage_dir=stage, policy=policy)).start() as sandbox:
    threading.Timer(0.5, print, ["running"], {"flush": True}).start()
    result = sandbox.run(RunRequest(code_dir=Path(sys.argv[3])))
    print(result.verdict.outcome, result.verdict.error_class, result.wall_time_s < 2)
"""


@pytest.mark.slow
def test_run_survives_that_everything_stood_still(split: Path, stage: Path) -> None:
    """As a virtual machine or a container that is paused: nothing of it notices while it lasts."""
    work = ("until = time.process_time() + 0.9", "while time.process_time() < until: pass")
    folder = write_submission(stage, "frozen", source(*work))
    command = [sys.executable, "-c", FROZEN, str(split), str(stage), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "running\n"
        everything = [launcher.pid, *(pid for pid, _ in descendants(launcher.pid))]
        for pid in everything:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4)
        for pid in everything:
            os.kill(pid, signal.SIGCONT)
        assert launcher.stdout.readline() == "weights  True\n"
