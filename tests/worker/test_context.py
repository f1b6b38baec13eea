"""What a worker's process keeps between shards."""

import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lethe.runtime.error_classes import Blame
from sandbox.launcher import RunRequest, RunResult, Sandbox
from server.config import Settings
from tests.sandbox.conftest import GOOD, MOUNTS, TEST_POLICY, write_split, write_submission
from worker.context import RunningContext
from worker.host.worker_info import worker_facts
from worker.split_storage.split_cache import SplitCache

LEAVES = """
import builtins
import torch

def unlearning(net, retain, forget, validation):
    builtins.left = torch.rand(1000)
    torch.set_default_dtype(torch.float64)
    for tensor in (*net.state_dict().values(), retain.dataset.stored.labels):
        tensor.zero_()
"""
WAITS = """
import time

def unlearning(net, retain, forget, validation):
    while True:
        time.sleep(0.1)
"""
TELLING = ("split", "digits", "private", "public", "visible", "competition", "storage")


@dataclass(frozen=True)
class Told:
    """What a worker's sandbox told: of its first zygote, of that one's end, and of the zygote after it."""

    home: Path
    data_dir: Path
    is_linked: bool  # the data that is shown
    mounts: tuple[RunResult, RunResult]
    good: tuple[RunResult, RunResult, RunResult]  # at first, after another run, in the new zygote
    broken: RunResult
    left: list[Path]  # of what was shown
    other: tuple[bool, bool]  # of a sandbox on other data: it has the first one's template; that one is closed


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    home = tmp_path_factory.mktemp("h")
    settings = Settings(home=home)
    unused: Any = None
    context = RunningContext(
        settings=settings,
        facts=worker_facts(settings),
        leases=unused,
        artefacts=unused,
        cache=SplitCache(settings.scratch / "splits", cap_bytes=1),
    )
    data_dir = write_split(home / "storage" / "splits" / "digits" / "private" / "visible")
    shown = settings.scratch / "shown"
    try:
        sandbox = context.sandbox(data_dir, TEST_POLICY)
        assert context.sandbox(data_dir, TEST_POLICY) is sandbox
        good, mounts, leaves, waits = (
            write_submission(context.stage_dir, f"{number:016x}", source)
            for number, source in enumerate((GOOD, MOUNTS, LEAVES, WAITS))
        )
        first = _run(sandbox, good), _run(sandbox, mounts)
        (inside,) = [path for path in shown.iterdir() if path.is_dir()]
        is_linked = (inside / "retain.safetensors").samefile(data_dir / "retain.safetensors")
        _run(sandbox, leaves)
        after = _run(sandbox, good)
        assert sandbox._link is not None
        threading.Timer(0.5, sandbox._link._process.send, [signal.SIGKILL]).start()
        broken = _run(sandbox, waits)
        again = _run(sandbox, good), _run(sandbox, mounts)
        template = sandbox._link._template
        other = context.sandbox(write_split(home / "other"), TEST_POLICY)
        assert other._link is not None
        same = other._link._template is template, sandbox._link is None
    finally:
        context.close()
    results = (first[1], again[1]), (first[0], after, again[0])
    return Told(home, data_dir, is_linked, *results, broken, list(shown.iterdir()), same)


def _run(sandbox: Sandbox, code: Path) -> RunResult:
    return sandbox.run(RunRequest(code_dir=code, seed=11, kind="sample"))


def test_sandbox_on_other_data_starts_from_the_same_template(told):
    assert told.other == (True, True)


def test_mounts_of_every_zygote_have_the_same_names_which_reveal_nothing(told: Told) -> None:
    roots, roots_again = (
        {target: root for root, target in (line.split() for line in run.log.decode().splitlines())}
        for run in told.mounts
    )
    assert f"{told.home.name}/scratch/shown/" in roots["/data"]
    assert roots["/data"] == roots_again["/data"]
    own = [root for root in roots.values() if told.home.name in root]
    assert own, roots  # the data; each run has a copy of the code in memory of its own
    assert not [root for root in own for word in TELLING if word in root.split(told.home.name)[1]]


def test_data_is_shown_by_links_that_go_with_the_sandbox(told: Told) -> None:
    assert told.is_linked, "linked, not copied"
    assert told.left == []
    assert (told.data_dir / "retain.safetensors").is_file()


def test_killed_zygote_is_a_host_fault_and_next_run_works(told: Told) -> None:
    assert (told.broken.verdict.error_class, told.broken.verdict.fault) == ("host-fault", Blame.HOST)
    assert told.good[-1].weights is not None, told.good[-1].facts.host_error


def test_run_is_the_same_in_a_used_and_in_a_new_zygote(told: Told) -> None:
    first, *others = (run.weights for run in told.good)
    assert first is not None
    assert others == [first, first]
