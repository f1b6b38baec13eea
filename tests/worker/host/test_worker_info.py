"""A worker's host: what it says of itself, its GPUs' files, the folders that it removes, and how its jobs end."""

import errno
import multiprocessing
import os
import signal
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lethe.competition.sections import Limits
from lethe.errors import HostFault, InvalidInput
from lethe.preparation.prepare import prepare_split
from sandbox.environments import own_environment
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import DRIVER_FOLDER, Isolation, Mount, RunPolicy
from server.config import Settings
from server.models.worker import WorkerFacts
from server.workers.registration import refusal
from server.workers.worker_repository import ReadySplit
from tests.lethe.conftest import competition
from tests.support.library_sets import write_set
from worker.host import graceful_shutdown
from worker.host.backoff import Cooling
from worker.host.gpu_sandbox import CUDA_HOST_MIB, device_files, driver_library, on_gpu, system_files
from worker.host.stage_folder import own_folder
from worker.host.worker_info import find_gpu, worker_facts
from worker.jobs import Job, Stopped, describe, run_job
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
    allowed = []
    for moment in (139.0, 140.0, 145.0):
        allowed.append(pace.allows())
        if moment == 140.0:
            pace.rest()
    assert allowed == [False, True, True]


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """/dev of a container that was given the host's GPUs 2 and 10."""
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps", "nvidia2", "nvidia10", "sda"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(("number", "name"), [(0, "nvidia2"), (1, "nvidia10")])
def test_a_run_is_shown_the_driver_and_its_own_gpu(folder: Path, number: int, name: str) -> None:
    shown = device_files(number, folder=folder)
    assert shown == tuple(str(folder / file) for file in ("nvidiactl", "nvidia-uvm", name))


def test_missing_gpu_and_driver_are_the_hosts_fault(folder: Path) -> None:
    with pytest.raises(HostFault, match=r"GPU 2 has no device file: .* holds those of 2"):
        device_files(2, folder=folder)
    (folder / "nvidia-uvm").unlink()
    with pytest.raises(HostFault, match="nvidia-uvm is missing"):
        device_files(0, folder=folder)


@pytest.mark.parametrize(("isolation", "expected"), [("process", Isolation.RUN), ("shard", Isolation.SHARD)])
def test_the_competition_chooses_how_far_runs_are_kept_apart(folder: Path, isolation: str, expected: Isolation) -> None:
    limits = Limits.model_validate({"isolation": isolation})
    policy = on_gpu(RunPolicy(threads=3, memory_mib=500), limits, number=0, folder=folder)
    assert (policy.device, policy.isolation, policy.threads) == ("cuda", expected, 3)
    assert policy.memory_mib == 500 + CUDA_HOST_MIB


def test_a_run_is_shown_the_topology_file_by_file_and_no_counter(tmp_path: Path) -> None:
    nodes = ("node0", "node1")
    for name in (*(f"devices/system/node/{node}/{file}" for node in nodes for file in ("cpumap", "meminfo")), "x/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shown = system_files(tmp_path)
    assert [mount.target for mount in shown] == [f"/sys/devices/system/node/{node}/cpumap" for node in nodes]
    assert [mount.source for mount in shown] == [str(tmp_path / mount.target[5:]) for mount in shown]


def test_driver_behind_alternatives_is_shown_with_its_folder(tmp_path: Path) -> None:
    """As Debian's packages lay it out: the name the loader finds leads through /etc, which a run has not."""
    current, alternative = tmp_path / "nvidia/current", tmp_path / "etc"
    current.mkdir(parents=True)
    alternative.mkdir()
    (current / "libcuda.so.1").symlink_to("libcuda.so.570.1")
    (current / "libcuda.so.570.1").touch()
    (alternative / "glx--libcuda.so.1").symlink_to(current / "libcuda.so.1")
    (tmp_path / "libcuda.so.1").symlink_to(alternative / "glx--libcuda.so.1")
    assert driver_library([Path("/nowhere")]) == (), "it is on the loader's path"
    assert driver_library([tmp_path / "other", tmp_path]) == (Mount(str(current), DRIVER_FOLDER),)


CODE = """
import torch

def unlearning(net, retain_loader, forget_loader, val_loader):
    assert next(net.parameters()).is_cuda
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter))
    return net
"""


@pytest.mark.gpu
@pytest.mark.parametrize("isolation", ["process", "shard"])
def test_gpu_runs_depend_on_their_seeds_alone(tmp_path: Path, isolation: str) -> None:
    prepare_split(competition(n_models=4), "public", tmp_path / "split")
    stage = tmp_path / "stage" / "code"
    stage.mkdir(parents=True)
    (stage / "submission.py").write_text(textwrap.dedent(CODE))
    limits = Limits.model_validate({"isolation": isolation})
    policy = replace(on_gpu(RunPolicy(memory_mib=8192, processes=256), limits, number=0), wall_time_s=120)
    spec = SandboxSpec(data_dir=tmp_path / "split" / "visible", stage_dir=stage.parent, policy=policy)
    with Launcher(spec).start() as sandbox:
        results = [sandbox.run(RunRequest(code_dir=stage, run=run, seed=run % 2)) for run in range(4)]
    weights = [result.weights for result in results]
    assert all(weights), [result.verdict for result in results]
    assert weights[0] == weights[2]
    assert weights[1] == weights[3]
    assert weights[0] != weights[1]


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
