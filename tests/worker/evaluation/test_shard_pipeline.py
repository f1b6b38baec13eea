"""A worker's shard: which it takes, how often a run is tried, and what the run on the public sample ends with."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch

from lethe.competition.file import RunRules, parse_competition
from lethe.data.files import read_json, read_tensors, sha256_of
from lethe.errors import HostFault
from lethe.evaluation.answer_evaluation import SampleAnswers
from lethe.evaluation.sample_answer_files import SAMPLE_ANSWERS
from lethe.preparation.prepare import begin_split
from lethe.runtime.error_classes import Blame
from lethe.submission.package import load_package
from sandbox.frame_reader import NotebookRun
from sandbox.launcher import RunResult
from sandbox.run_request import RunRequest
from sandbox.verdict import ExitFacts, Verdict
from server.competitions import preparation_turns
from server.config import Settings
from server.db import Database
from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import ShardKind
from server.models.worker import Worker, WorkerFacts, WorkerState
from server.workers import registration
from tests.support.instance import GOOD_CODE
from tests.support.towns import towns_toml, write_towns
from worker.evaluation import shard_pipeline
from worker.evaluation.evaluation_pipeline import answers_of_run
from worker.evaluation.shard_pipeline import TRIES_WITHIN_TIME, claim, run_shard
from worker.host import backoff
from worker.host.backoff import QUARANTINE_AFTER, Cooling, DevicePace
from worker.transport import DatabaseTransport

FACTS = WorkerFacts("host-1", "cpu", 1024, {"torch": "2.11.0"})


@pytest.fixture
def context(migrated_sqlite_url: str, tmp_path: Path) -> Any:
    database = Database(migrated_sqlite_url)
    settings = Settings(home=tmp_path, sandbox_backend="plain", environment="embedded")
    transport: Any = DatabaseTransport(database, None, settings, FACTS)  # type: ignore[arg-type]
    yield SimpleNamespace(settings=settings, cooling=Cooling(), database=database, transport=transport)
    database.dispose()


def reported(context: Any) -> tuple[str, str]:
    with context.database.read() as session:
        row = session.get_one(Worker, FACTS.name)
        return row.state, row.detail


def test_cooling_process_says_why(context: Any) -> None:
    context.cooling.fault("no space left")
    assert claim(context, context.transport) is None
    assert reported(context) == (WorkerState.COOLING, "no space left")


def test_quarantined_process_takes_work_only_after_its_canary(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = ["the disk is full", ""]
    monkeypatch.setattr(backoff, "problem", lambda _: problems.pop(0))
    for _ in range(QUARANTINE_AFTER):
        context.cooling.fault("no space left")
    assert claim(context, context.transport) is None
    assert reported(context) == (WorkerState.QUARANTINED, "no space left")
    context.cooling._until = 0.0
    assert claim(context, context.transport) is None
    assert reported(context) == (WorkerState.QUARANTINED, "the disk is full")
    context.cooling._until = 0.0
    assert claim(context, context.transport) is None, "nothing waits, but it asked"
    assert reported(context) == (WorkerState.ACTIVE, "")
    assert not problems
    context.cooling.fault("again")
    assert context.cooling.is_quarantined, "one shard was its trial"


def test_process_that_prepares_first_is_known_beforehand(context: Any) -> None:
    """A preparation takes a share of the processes that are known: one that nobody knew was no process."""
    with context.database.write() as session:
        assert preparation_turns.find(session, context.settings).most == 1
    for name in ("host-1", "host-2"):
        replace(context.transport, facts=replace(FACTS, name=name)).report()
    with context.database.write() as session:
        assert preparation_turns.find(session, context.settings).most == 2


def test_process_of_a_cordoned_host_drains(context: Any) -> None:
    claim(context, context.transport)
    assert reported(context) == (WorkerState.ACTIVE, "")
    with context.database.write() as session:
        registration.cordon(session, "host", why="a new disk", actor=None)
    claim(context, context.transport)
    assert reported(context) == (WorkerState.DRAINING, "cordoned: a new disk")


def test_canary_names_a_scratch_folder_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(home=tmp_path / "file", sandbox_backend="plain", environment="embedded")
    assert "cannot be written" in backoff.problem(settings)


@pytest.mark.slow
def test_canary_runs_on_a_healthy_host(tmp_path: Path) -> None:
    assert not backoff.problem(Settings(home=tmp_path, environment="embedded"))


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
