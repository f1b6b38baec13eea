"""What a replay calls equal and what a bundle may name; a benchmark's runs in the sandbox."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load, load_file

from lethe.benchmark.execution import UnfinishedBenchmark
from lethe.benchmark.method_runs import stored_outputs
from lethe.benchmark.plan import read_plan
from lethe.benchmark.store import BenchmarkFolder
from lethe.competition.visibility import Visibility
from lethe.errors import HostFault, InvalidInput
from lethe.runtime.error_classes import OF_THE_MACHINE, ErrorClass
from sandbox.launcher import Launcher, Sandbox
from server.evaluations.claimed_shard import ShardFailure
from server.models.submission import Fault
from tests.lethe.conftest import competition, execute, write_files
from worker.context import RunningContext
from worker.evaluation import replay
from worker.evaluation.benchmark_runs import sandbox_runs
from worker.evaluation.bundle_replay import read_published
from worker.evaluation.replay import ATTEMPTS, Replayed, Stored, differs_from_receipt

SCORE = 0.1

STORED = Stored(
    submission_id="0" * 16,
    visibility="public",
    score=SCORE,
    scorer_version="7",
    content_sha256="c0de",
    manifest_sha256="5911",
    split_device="cpu",
    split_versions={},
    file=competition(),
    shards=(),
)

RECEIPT: dict[str, dict[str, Any]] = {
    "score": {"final_score_bits": SCORE.hex(), "scorer_version": "7"},
    "submission": {"sha256": "c0de"},
    "split": {"manifest_sha256": "5911"},
}


@pytest.mark.parametrize(
    ("score", "different_runs", "expected"),
    [(SCORE, [], True), (0.1 + 2**-56, [], False), (SCORE, [3], False), (None, [], False)],
)
def test_replay_is_equal_to_the_last_bit_of_all(score, different_runs, *, expected):
    assert Replayed(STORED, score=score, different_runs=different_runs).is_equal is expected


@pytest.mark.parametrize(
    ("part", "name", "told"),
    [
        ("score", "final_score_bits", "score"),
        ("score", "scorer_version", "scorer version"),
        ("submission", "sha256", "code"),
        ("split", "manifest_sha256", "split's manifest"),
    ],
)
def test_receipt_that_says_otherwise_is_told(part: str, name: str, told: str) -> None:
    assert differs_from_receipt(STORED, RECEIPT) == []
    receipt = deepcopy(RECEIPT)
    receipt[part][name] = "another"
    [sentence] = differs_from_receipt(STORED, receipt)
    assert sentence.startswith(f"the receipt's {told} is another, stored is ")


def test_rounded_receipt_of_a_team_is_compared_with_the_digits_that_it_has() -> None:
    receipt = deepcopy(RECEIPT)
    receipt["score"] |= {"final_score_bits": None, "final_score": round(SCORE, 5)}
    assert differs_from_receipt(STORED, receipt) == []
    receipt["score"]["final_score"] = round(SCORE, 5) + 1e-5
    [sentence] = differs_from_receipt(STORED, receipt)
    assert sentence.startswith("the receipt's score is ")


def again(monkeypatch: pytest.MonkeyPatch, end: Callable[[Any], None]) -> Replayed:
    """Replay a shard whose every try ends so."""
    monkeypatch.setattr(replay, "run_shard", lambda context, _: end(context.leases))
    replayed = Replayed(STORED)
    shard: Any = SimpleNamespace(first_run=0, n_runs=2)
    replay._again(cast("RunningContext", SimpleNamespace()), None, (shard, "", ""), replayed)  # type: ignore[arg-type]
    return replayed


def failed(error_class: str) -> Callable[[Any], None]:
    def end(leases: Any) -> None:
        leases.failure = ShardFailure(fault=Fault.PARTICIPANT, error_class=error_class, message="it ended", run=1)

    return end


@pytest.mark.parametrize("error_class", sorted(OF_THE_MACHINE))
def test_limit_of_this_machine_says_nothing_about_a_score(monkeypatch: pytest.MonkeyPatch, error_class: str) -> None:
    assert ErrorClass(error_class).message, "a class that no run ends with"
    with pytest.raises(HostFault, match="run 1 could not be repeated on this machine, which says nothing"):
        again(monkeypatch, failed(error_class))


def test_other_failure_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    assert again(monkeypatch, failed("exception")).differences == ["run 1 failed now: exception: it ended"]


def test_shard_that_this_machine_could_not_run_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def end(leases: Any) -> None:
        tries.append(leases)
        leases.given_back = "the machine was too busy"

    with pytest.raises(HostFault, match="too busy"):
        again(monkeypatch, end)
    assert len(tries) == ATTEMPTS


ENTRY = {"id": "e1", "code": "code.py", "filename": "code.py", "mode": "function"}


@pytest.mark.parametrize(("name", "path"), [("root", "/home/eve"), ("root", "~"), ("root", "a/../.."), ("cache", "/x")])
def test_data_outside_the_bundle_is_not_read(tmp_path: Path, name: str, path: str) -> None:
    file = competition().model_dump(mode="json")
    file["dataset"] = {"name": "folder", "options": {"root": "faces", name: path}}
    score = {"receipt": "receipt.json"}
    content = {
        "entries.json": [{**ENTRY, "parts": [{"task": "", "scores": {"public": score}}]}],
        "receipt.json": {},
        "competition.json": file,
    }
    for each, value in content.items():
        (tmp_path / each).write_text(json.dumps(value))
    (tmp_path / "code.py").write_text("def unlearning(net, retain_loader, forget_loader, val_loader):\n    pass\n")
    with pytest.raises(InvalidInput, match=f"dataset.options.{name} must be a path inside the bundle"):
        read_published(tmp_path, "e1", task="", visibility=Visibility.PUBLIC)


def test_methods_share_a_sandbox_until_it_fails_and_then_a_new_one(tmp_path, monkeypatch):
    """The first is lost at the second method's first run; what it left undone is made up for in the second."""
    path = write_files(tmp_path)
    path.write_text(path.read_text().replace("n_models = 4", "n_models = 4\nseeds = 4"))
    plan, folder = read_plan(path), BenchmarkFolder(tmp_path / "out")
    original, finetune, broken = units = [folder.unit(plan.cells[0], method) for method in plan.methods]
    started, asked, originals = [], [], []

    def end_once(self, request):
        asked.append(self)
        if len(asked) == original.n_runs + 1 == 5:
            self.close()
            raise HostFault("the sandbox is gone")
        result = run(self, request)
        if len(asked) <= 4:  # of the method that gives the original back
            originals.append((load_file(request.original), load(result.weights)))
        return result

    start, run = Launcher.start, Sandbox.run
    monkeypatch.setattr(Launcher, "start", lambda self: started.append(1) or start(self))
    monkeypatch.setattr(Sandbox, "run", end_once)
    with sandbox_runs("plain") as open_runs:
        with pytest.raises(UnfinishedBenchmark, match="the sandbox is gone"):
            execute(path, tmp_path / "out", open_runs=open_runs)
        assert [unit.n_runs for unit in units] == [4, 0, 0]
        assert broken.read("failure")["class"] == "exception"
        execute(path, tmp_path / "out", open_runs=open_runs)
    assert [unit.n_runs for unit in units] == [4, 4, 0]
    assert len(started) == len(set(asked)) == 2
    assert original.read("backend") == finetune.read("backend") == {"sandbox": "plain"}
    assert len({row.tobytes() for row in stored_outputs(original).confidences}) == len(originals) == 4
    assert all(torch.equal(value, given[name]) for own, given in originals for name, value in own.items())
