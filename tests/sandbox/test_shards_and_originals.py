"""Runs with original models of their own, and shard mode: one process for the runs of a shard."""

import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from lethe.runtime.error_classes import Blame
from sandbox.controls import Control, missing_controls
from sandbox.errors import InvalidRequest
from sandbox.frame_reader import NotebookRun
from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec
from sandbox.policy import Isolation

from .conftest import GOOD, TEST_POLICY, MakeOriginal, write_submission

UNCHANGED = "def unlearning(net, retain, forget, validation): pass\n"
LOOK = """
import os

def unlearning(net, retain, forget, validation):
    print(sorted(os.listdir("/data")))
    for folder in ("/stage", "/submission"):
        try:
            print(sorted(os.listdir(folder)))
        except OSError as error:
            print(type(error).__name__)
    try:
        open("/data/original_model.safetensors", "r+b")
    except OSError as error:
        print(type(error).__name__)
    shown = open("/data/original_model.safetensors", "rb").read()
    for parameter in net.parameters():
        assert parameter.detach().numpy().tobytes() in shown
"""


def test_each_run_gets_exactly_its_own_original(sandbox: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "unchanged", UNCHANGED)
    files = [original(index) for index in range(3)]
    results = [sandbox.run(RunRequest(code_dir=folder, run=run, original=path)) for run, path in enumerate(files)]
    assert [result.weights for result in results] == [path.read_bytes() for path in files], results[0].verdict
    assert len({result.weights for result in results}) == 3


def test_run_sees_only_its_own_original(sandbox: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "looks", LOOK)
    own, _other = original(0), original(1)
    result = sandbox.run(RunRequest(code_dir=folder, original=own, kind="sample"))
    assert result.weights == own.read_bytes(), result.log
    sets = ["forget", "retain", "validation"]
    data = sorted(["network.json", "original_model.safetensors", *(f"{name}.safetensors" for name in sets)])
    listed, stage_seen, code_seen, written = result.log.decode().splitlines()
    assert listed == str(data)
    assert stage_seen in ("PermissionError", "FileNotFoundError")
    assert code_seen == "['submission.py']"
    assert written in ("PermissionError", "OSError")


def test_the_next_run_without_one_starts_from_the_splits_own(sandbox, split, stage, original):
    folder = write_submission(stage, "unchanged", UNCHANGED)
    sandbox.run(RunRequest(code_dir=folder, original=original(0)))
    splits = (split / "original_model.safetensors").read_bytes()
    assert sandbox.run(RunRequest(code_dir=folder)).weights == splits


def test_split_model_as_original_gives_the_same_bits(sandbox: Sandbox, split: Path, stage: Path) -> None:
    folder = write_submission(stage, "good", GOOD)
    copy = Path(shutil.copy(split / "original_model.safetensors", stage / "copy.safetensors"))
    plain = sandbox.run(RunRequest(code_dir=folder, seed=5)).weights
    assert plain is not None
    assert sandbox.run(RunRequest(code_dir=folder, seed=5, original=copy)).weights == plain


def test_an_original_elsewhere_is_refused(sandbox: Sandbox, split: Path, stage: Path) -> None:
    folder = write_submission(stage, "unchanged", UNCHANGED)
    with pytest.raises(InvalidRequest, match="must be a file below"):
        sandbox.run(RunRequest(code_dir=folder, original=split / "original_model.safetensors"))


def test_an_original_with_other_tensors_is_refused(sandbox: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "unchanged", UNCHANGED)
    other = original(0)
    save_file({name.upper(): value for name, value in load_file(other).items()}, other)
    with pytest.raises(InvalidRequest, match="has other tensors"):
        sandbox.run(RunRequest(code_dir=folder, original=other))
    short = original(1)
    short.write_bytes(short.read_bytes()[:-4])
    with pytest.raises(InvalidRequest, match="has other tensors"):
        sandbox.run(RunRequest(code_dir=folder, original=short))


def test_a_notebook_has_no_original_for_each_run(sandbox: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "unchanged", UNCHANGED)
    notebook = NotebookRun(2, lambda _slot, _weights: None)
    with pytest.raises(InvalidRequest, match="from one original"):
        sandbox.run(RunRequest(code_dir=folder, original=original(0), notebook=notebook))


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
    # In the place where the next run is asked for: what says nothing, so that the process does not end by itself.
    source = "import os\n\ndef unlearning(*_):\n    os.dup2(os.pipe()[0], 4)\n"
    folder = write_submission(stage, "deaf", source)
    assert shard.run(RunRequest(code_dir=folder)).weights is not None
    verdict = shard.run(RunRequest(code_dir=folder)).verdict
    assert (verdict.error_class, verdict.fault) == ("idle", Blame.PARTICIPANT), verdict


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
