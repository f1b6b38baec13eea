"""Shard mode: one process for the runs of a shard, each from the original weights with its own seed and clock."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lethe.runtime.error_classes import Blame
from sandbox.controls import Control, missing_controls
from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec
from sandbox.policy import Isolation

from .conftest import GOOD, TEST_POLICY, MakeOriginal, write_submission


@pytest.fixture(scope="module")
def shard(split: Path, stage: Path) -> Iterator[Sandbox]:
    policy = replace(TEST_POLICY, isolation=Isolation.SHARD, idle_time_s=1)
    with Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=policy)).start() as started:
        yield started


def test_runs_share_a_process_and_give_the_bits_of_separate_ones(shard: Sandbox, sandbox: Sandbox, stage: Path) -> None:
    folder = write_submission(stage, "good", GOOD)
    requests = [RunRequest(code_dir=folder, run=run, seed=run % 2) for run in range(3)]
    together, apart = ([box.run(request).weights for request in requests] for box in (shard, sandbox))
    assert together == apart
    assert together[0] == together[2] != together[1]


COUNT = """
import os

def unlearning(*_):
    found = len(os.listdir("/scratch"))
    print(found)
    open(f"/scratch/{found}", "w").close()
"""


def test_process_is_kept_for_the_same_submission_only(shard: Sandbox, stage: Path) -> None:
    one, other = (write_submission(stage, name, COUNT) for name in ("one", "other"))
    logs = [shard.run(RunRequest(code_dir=folder, kind="sample")).log for folder in (one, one, other)]
    assert logs == [b"0\n", b"1\n", b"0\n"]


def test_every_original_has_a_process_of_its_own(shard: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "counts", COUNT)
    originals = (None, original(0), original(1), None)
    results = [shard.run(RunRequest(code_dir=folder, original=path, kind="sample")) for path in originals]
    assert [result.log for result in results] == [b"0\n"] * 4
    assert [result.weights for result in results[1:3]] == [path.read_bytes() for path in originals[1:3] if path]


def test_time_between_runs_is_nobodys(shard: Sandbox, stage: Path) -> None:
    folder = write_submission(stage, "good", GOOD)
    shard.run(RunRequest(code_dir=folder))
    time.sleep(1.5)  # longer than the idle limit
    began = time.monotonic()
    result = shard.run(RunRequest(code_dir=folder))
    assert result.weights is not None, result.verdict
    assert result.wall_time_s <= time.monotonic() - began


def test_failed_run_ends_the_process_and_the_next_one_is_fresh(shard: Sandbox, stage: Path) -> None:
    source = "def unlearning(*_):\n    if SEED: raise ValueError\n    while True: pass\n"
    failing = write_submission(stage, "failing", source.replace("SEED", "True"))
    assert shard.run(RunRequest(code_dir=failing)).verdict.error_class == "exception"
    assert shard.run(RunRequest(code_dir=write_submission(stage, "good", GOOD))).weights is not None


def test_process_that_no_longer_listens_is_the_submissions_failure(shard: Sandbox, stage: Path) -> None:
    source = "import os\n\ndef unlearning(*_):\n    os.close(4)\n"  # where the next run is asked for
    folder = write_submission(stage, "deaf", source)
    assert shard.run(RunRequest(code_dir=folder)).weights is not None
    verdict = shard.run(RunRequest(code_dir=folder)).verdict
    assert (verdict.error_class, verdict.fault) == ("no-weights", Blame.PARTICIPANT), verdict


FORGED = """
import json
import os
import socket


def unlearning(*_):
    if not os.path.exists("/scratch/begun"):
        open("/scratch/begun", "w").close()
        os.dup2(4, 50)  # where the next run is asked for: from now on, it is asked for by this
        reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.dup2(reader.fileno(), 4)
        for run in range(1, RUNS):
            writer.send(json.dumps({"run": run, "seed": 0}).encode())
        writer.detach()
    END
"""


def test_messages_left_unread_at_the_end_are_no_host_fault(shard: Sandbox, stage: Path) -> None:
    source = FORGED.replace("RUNS", "2").replace("END", "else: os.close(50)")
    folder = write_submission(stage, "forgets-its-messages", source)
    for _ in range(2):
        assert shard.run(RunRequest(code_dir=folder)).weights is not None
    verdict = shard.run(RunRequest(code_dir=folder)).verdict
    assert verdict.fault is Blame.PARTICIPANT, verdict


def test_process_that_never_reads_its_messages_holds_nobody_up(shard: Sandbox, stage: Path) -> None:
    n_runs = 30
    folder = write_submission(stage, "never-reads", FORGED.replace("RUNS", str(n_runs)).replace("END", ""))
    results = [shard.run(RunRequest(code_dir=folder))]
    assert shard._kept is not None
    gate = shard._kept[1]._pipes.gate
    assert isinstance(gate, socket.socket)
    gate.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least: soon nothing more fits
    results += [shard.run(RunRequest(code_dir=folder)) for _ in range(n_runs - 1)]
    assert all(result.weights is not None for result in results)


def test_receipt_says_that_runs_were_not_isolated(shard: Sandbox) -> None:
    assert shard.controls["isolation"] == "shard"
    (sentence,) = missing_controls(shard.achieved, {Control.RUN_ISOLATION})
    assert "'run-isolation'" in sentence
