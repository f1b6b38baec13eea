"""A worker's start: what it says of itself, the folders that it removes, messages that it follows once."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.environments import own_environment
from server.config import Settings
from server.models.worker import WorkerFacts
from server.workers.registration import refusal
from server.workers.worker_repository import ReadySplit
from tests.support.library_sets import write_set
from worker.host import graceful_shutdown
from worker.host.backoff import Cooling
from worker.host.stage_folder import own_folder
from worker.host.worker_info import find_gpu, worker_facts
from worker.server_tasks import Throttle

SPLIT = ReadySplit("s", "digits", "public", "cuda", {"torch": "2.13.0+cu130"}, memory_mib=2048, isolation="shard")

WORKER = {"name": "w", "device": "cuda", "memory_mib": 4096, "versions": {"torch": "2.13.1"}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"device": "cpu"}, "was prepared on cuda, this worker computes on cpu"),
        ({"memory_mib": 2000}, "allows a run 2048 MiB of memory, this worker has 2000 MiB"),
        ({"versions": {"torch": "2.11.0"}}, "torch 2.13.0+cu130, this worker has 2.11.0: install 2.13"),
        ({"versions": {}}, "this worker has None"),
        ({"isolates_runs": True}, "lets a shard's runs share a process"),
    ],
)
def test_refusal_names_what_differs(changes: dict[str, object], reason: str | None) -> None:
    found = refusal(WorkerFacts(**(WORKER | changes)), SPLIT)  # type: ignore[arg-type]
    assert found is None if reason is None else reason in str(found)


def test_a_worker_without_a_competitions_older_libraries_is_refused(tmp_path: Path) -> None:
    asks, worker = replace(SPLIT, libraries="2023"), WorkerFacts(**WORKER)  # type: ignore[arg-type]
    assert "libraries of 2023, which this worker does not have: lethe libraries install 2023" in str(
        refusal(worker, asks)
    )
    facts = worker_facts(Settings(home=tmp_path, libraries_dir=write_set(tmp_path / "sets")))
    assert facts.versions["libraries 2023"] == f"python {own_environment().python}, torch 2.1.2"
    assert refusal(replace(worker, versions=worker.versions | {"libraries 2023": "x"}), asks) is None
    assert "libraries 2023" not in worker_facts(Settings(home=tmp_path)).versions


def test_facts_are_of_one_process() -> None:
    facts = worker_facts(Settings(worker_memory_mib=8192, worker_concurrency=4))
    assert facts.memory_mib == 2048
    assert facts.versions["torch"]
    assert not facts.isolates_runs
    assert worker_facts(Settings(sandbox_required="strict")).isolates_runs


def test_extra_memory_of_cuda_runs_is_not_offered() -> None:
    on_gpu = {"worker_memory_mib": 8192, "worker_concurrency": 4, "worker_device": "cuda"}
    facts = worker_facts(Settings(**on_gpu))  # type: ignore[arg-type]
    assert facts.memory_mib == 2048 - 1024
    assert refusal(replace(facts, versions=SPLIT.versions), replace(SPLIT, memory_mib=1024)) is None
    assert "this worker has 1024 MiB" in str(refusal(facts, replace(SPLIT, memory_mib=1025)))
    assert worker_facts(Settings(**on_gpu | {"worker_memory_mib": 2048})).memory_mib == 0  # type: ignore[arg-type]


def test_processes_take_turns_on_the_gpus() -> None:
    settings = Settings(worker_gpus="0,2", worker_concurrency=4)
    assert [find_gpu(settings, slot=slot) for slot in range(4)] == ["0", "2", "0", "2"]


def test_cooling_grows_with_each_fault_and_ends_with_a_success() -> None:
    cooling = Cooling()
    assert not cooling.is_on
    assert [cooling.fault() for _ in range(3)] == [2, 4, 8]
    assert cooling.is_on
    cooling.success()
    assert not cooling.is_on


def test_drain_first_takes_nothing_new_then_gives_back() -> None:
    try:
        graceful_shutdown.begin(give_back_after_s=60)
        assert graceful_shutdown.is_asked()
        assert not graceful_shutdown.is_over()
        graceful_shutdown.begin(give_back_after_s=0)
        assert graceful_shutdown.is_over()
    finally:
        graceful_shutdown.reset()
    assert not graceful_shutdown.is_asked()


def test_only_the_first_of_a_pile_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    pace = Throttle(5.0)
    assert [pace.allows() for _ in range(3)] == [True, False, False]
    moment = 104.9
    assert not pace.allows()
    moment = 105.0
    assert [pace.allows(), pace.allows()] == [True, False]


def test_slow_job_leaves_as_much_time_to_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    pace = Throttle(5.0)
    assert pace.allows()
    moment = 120.0
    pace.rest()
    moment = 139.0
    assert not pace.allows()
    moment = 140.0
    assert pace.allows()
    pace.rest()
    moment = 145.0
    assert pace.allows()


def _hold(parent: Path, ready: Any) -> None:
    folder = own_folder(parent)
    code = folder / "0123" / "package"
    code.mkdir(parents=True)
    (code / "submission.py").write_text("x = 1")
    code.chmod(0o555)
    ready.put(folder.name)
    signal.pause()


def start(parent: Path) -> tuple[Any, str]:
    context = multiprocessing.get_context("fork")
    ready = context.SimpleQueue()
    process = context.Process(target=_hold, args=(parent, ready))
    process.start()
    return process, ready.get()


def test_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    living, living_name = start(tmp_path)
    killed, killed_name = start(tmp_path)
    try:
        os.kill(killed.pid, signal.SIGKILL)
        killed.join()
        assert (tmp_path / killed_name).is_dir()
        mine = own_folder(tmp_path)
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {living_name, mine.name}
        assert (tmp_path / living_name / "0123" / "package" / "submission.py").is_file()
    finally:
        living.kill()
        living.join()


def test_process_keeps_its_folder(tmp_path: Path) -> None:
    assert own_folder(tmp_path) == own_folder(tmp_path)
