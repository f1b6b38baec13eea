"""A run on the public sample of language models ends with its model's answers; one of images with nothing."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch

from lethe.competition.file import RunRules, parse_competition
from lethe.data.files import read_json, read_tensors, sha256_of
from lethe.evaluation.answer_evaluation import SampleAnswers
from lethe.evaluation.sample_answer_files import SAMPLE_ANSWERS
from lethe.preparation.prepare import begin_split
from lethe.runtime.error_classes import Blame
from lethe.submission.package import load_package
from sandbox.launcher import RunResult
from sandbox.verdict import ExitFacts, Verdict
from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import ShardKind
from tests.support.instance import GOOD_CODE
from tests.support.towns import towns_toml, write_towns
from worker.evaluation import shard_pipeline
from worker.evaluation.evaluation_pipeline import answers_of_run
from worker.evaluation.shard_pipeline import run_shard

RUN_S = 0.25  # of the participant's clock


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A split of language models whose sample is there, and whose retrained models are not."""
    folder = tmp_path_factory.mktemp("text")
    out = folder / "split"
    file = parse_competition(towns_toml(write_towns(folder / "towns"), n_models=4, epochs=20))
    begin_split(file, "public", out)
    return out


@pytest.fixture
def original(split: Path) -> bytes:
    return (split / "sample" / "original_model.safetensors").read_bytes()


@dataclass
class Host:
    """A worker whose sandbox returns given weights. closed: what it ended its shard with."""

    split: Path
    weights: bytes
    stage_dir: Path
    closed: list[tuple[bytes | None, float]] = field(default_factory=list)
    beats: int = 0

    def run(self) -> str:
        context: Any = SimpleNamespace(
            settings=SimpleNamespace(heartbeat_s=0.05, lease_s=1.0, worker_device="cpu", worker_threads=1),
            artefacts=SimpleNamespace(split=lambda _: self.split, package=lambda _: GOOD_CODE),
            stage_dir=self.stage_dir,
            sandbox=lambda *_: SimpleNamespace(controls={}, run=self._result),
            cooling=SimpleNamespace(success=lambda: None, fault=lambda: 0.0),
            leases=SimpleNamespace(
                note_controls=lambda *_: None, heartbeat=self._beat, close=self._close, give_back=lambda *_, **__: True
            ),
        )
        return run_shard(context, shard())

    def _result(self, *_: object, **__: object) -> RunResult:
        verdict = Verdict(outcome="weights", fault=Blame.NONE, error_class="", message="")
        return RunResult(self.weights, ExitFacts(), verdict, RUN_S, RUN_S, 1.0, b"")

    def _beat(self, *_: object, **__: object) -> bool:
        self.beats += 1
        return True

    def _close(
        self, _shard: object, result: bytes | None, _logs: object, *, wall_time_s: float, weights: bytes | None
    ) -> bool:
        assert weights is None
        self.closed.append((result, wall_time_s))
        return True


def shard() -> ClaimedShard:
    """Return the run on the sample of a submission."""
    file = parse_competition(towns_toml("towns", n_models=4))
    return ClaimedShard(
        shard_id=1,
        attempt=1,
        failed_attempts=0,
        evaluation_id="e",
        submission_id="s",
        request_id="r",
        kind=ShardKind.SMOKE,
        first_run=0,
        n_runs=1,
        seeds=(1,),
        content_sha256="0" * 64,
        filename="submission.py",
        entry_point=load_package(GOOD_CODE, "submission.py", modes=("function",)).entry_point.as_data(),
        device="cpu",
        split_key="splits/towns/public",
        manifest_sha256="0" * 64,
        retraining_time_s=1.0,
        competition=RunRules.of(file),
    )


def test_run_on_the_sample_ends_with_its_models_answers(split: Path, original: bytes, tmp_path: Path) -> None:
    host = Host(split, original, tmp_path)
    assert host.run() == "done"
    ((result, wall_time_s),) = host.closed
    stored = json.loads(result or b"")
    questions = read_json(split / SAMPLE_ANSWERS)["questions"]
    assert stored == {
        "questions_sha256": sha256_of(split / SAMPLE_ANSWERS),
        "answers": [question["original"] for question in questions],
    }
    assert all(stored["answers"])
    assert wall_time_s == RUN_S


def test_answering_renews_the_lease_and_costs_no_run_time(split, original, tmp_path, monkeypatch):
    host = Host(split, original, tmp_path)
    beats: list[int] = []

    def slowly(*_: object, **__: object) -> bytes:
        beats.append(host.beats)
        time.sleep(0.4)
        beats.append(host.beats)
        return b"{}"

    monkeypatch.setattr(shard_pipeline, "answers_of_run", slowly)
    host.run()
    assert beats[1] >= beats[0] + 3
    assert host.closed == [(b"{}", RUN_S)]


def test_sample_without_questions_gives_nothing_and_reads_nothing(split, original, tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    monkeypatch.setattr(SampleAnswers, "load", lambda *_: pytest.fail("nothing is to be asked"))
    host = Host(tmp_path / "images", original, tmp_path)
    assert host.run() == "done"
    assert host.closed == [(None, RUN_S)]


def test_run_goes_well_where_its_answers_cannot_be_had(split: Path, original: bytes, tmp_path: Path) -> None:
    state = read_tensors(split / "sample" / "original_model.safetensors")
    huge = {name: value * 1e38 if "norm" in name else value for name, value in state.items()}
    found = answers_of_run(split, safetensors.torch.save(huge), device="cpu")
    assert json.loads(found or b"")["answers"] is None
    damaged = tmp_path / "damaged"
    (damaged / SAMPLE_ANSWERS).parent.mkdir(parents=True)
    (damaged / SAMPLE_ANSWERS).write_text("{}", encoding="utf-8")
    host = Host(damaged, original, tmp_path)
    assert host.run() == "done"
    assert host.closed == [(None, RUN_S)]
