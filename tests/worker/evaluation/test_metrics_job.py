"""Metrics beside the score through the real task, on a prepared split with captured arrays."""

import hashlib
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from sqlalchemy import select

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.data.errors import DamagedSplit
from lethe.errors import HostFault
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.shard_outputs import ShardOutputs, stacked
from lethe.evaluation.split_inputs import FILES_READ
from lethe.preparation.prepare import prepare_split
from server.config import Settings
from server.db import Database, now
from server.evaluations.results import weights_key
from server.metric_results import metric_results
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, EvaluationState, MetricResult, Shard, ShardState
from server.storage import Storage, split_key
from tests.lethe.conftest import competition as competition_file
from tests.server.evaluations.conftest import add_submission, competition, database, sent
from worker.evaluation import metrics_job
from worker.evaluation.metrics_job import compute_metrics

__all__ = ["competition", "database", "sent"]
ASKED = ("accuracy_gap", "retdev", "klom", "js_to_retrained", "epsilon_histogram")
REPORT = {"metrics": [{"id": name} for name in ASKED]}
N = 5


@pytest.fixture(scope="module")
def split_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("metrics") / "public"
    prepare_split(competition_file(report={"metrics": ["accuracy_gap", "retdev", "klom"]}), "public", out)
    return out


def returned_originals(split_dir: Path) -> ShardOutputs:
    """The outputs of N runs that return the original model."""
    run = SplitEvaluator.load(split_dir).evaluate_state(load_original(split_dir))
    return ShardOutputs(
        confidences=np.stack([run.confidences] * N),
        retain_accuracy=np.full(N, run.retain_accuracy),
        test_accuracy=np.full(N, run.test_accuracy),
        wall_time_s=np.ones(N),
        captured=stacked([run.captured] * N),
    )


def scored_evaluation(
    database: Database,
    competition: Competition,
    storage: Storage,
    split_dir: Path,
    *,
    report: dict[str, Any] = REPORT,
    weights: bytes | None = None,
) -> str:
    submission = add_submission(database, competition, "ada")
    key = split_key(competition.slug, "public")
    shutil.copytree(split_dir, storage.local_folder(key), dirs_exist_ok=True)
    with database.write() as session:
        stored = session.get_one(Competition, competition.id)
        stored.config = stored.config | {"report": report}
        split = session.scalars(select(Split).where(Split.visibility == Visibility.PUBLIC.value)).one()
        split.manifest_sha256 = hashlib.sha256((split_dir / "manifest.json").read_bytes()).hexdigest()
        evaluation = Evaluation(
            submission_id=submission.id,
            split_id=split.id,
            n_runs=N,
            state=EvaluationState.SCORED.value,
            scorer_version="by hand",
            is_current=False,
        )
        session.add(evaluation)
        session.flush()
        outputs = returned_originals(split_dir)
        if weights is not None:
            outputs = replace(outputs, weights_sha256=storage.write(weights_key("results/one"), weights))
        sha256 = storage.write("results/one", outputs.to_bytes())
        session.add(
            Shard(
                evaluation_id=evaluation.id,
                team_id=submission.team_id,
                split_id=split.id,
                competition_id=competition.id,
                state=ShardState.DONE.value,
                first_run=0,
                n_runs=N,
                runs_done=N,
                result_key="results/one",
                result_sha256=sha256,
            )
        )
        metric_results.request(session, evaluation, CompetitionFile.model_validate(stored.config))
        return evaluation.id


@pytest.fixture
def computed(database, competition, split_dir, tmp_path, sent):
    storage = Storage(tmp_path.as_uri())
    evaluation = scored_evaluation(database, competition, storage, split_dir)
    context = SimpleNamespace(database=database, storage=storage, settings=Settings())
    assert compute_metrics(context, evaluation) == len(ASKED)  # type: ignore[arg-type]
    assert compute_metrics(context, evaluation) == 0  # type: ignore[arg-type]
    with database.read() as session:
        return {row.metric_id: row for row in session.scalars(select(MetricResult))}


def test_values_stand_beside_oracle_and_original(computed: dict[str, MetricResult]) -> None:
    for name in ("accuracy_gap", "retdev", "klom"):
        row = computed[name]
        assert row.not_computed == ""
        assert row.value == pytest.approx(row.original), "the submission returned the original"
        assert row.oracle is not None


def test_original_is_further_from_retrained_than_the_oracle(computed: dict[str, MetricResult]) -> None:
    row = computed["accuracy_gap"]
    assert row.value is not None
    assert row.oracle is not None
    assert row.value > row.oracle


def test_epsilon_of_a_constant_submission_is_above_the_oracles(computed: dict[str, MetricResult]) -> None:
    row = computed["epsilon_histogram"]
    assert row.oracle is not None
    assert row.original is not None
    assert row.value is not None
    assert row.oracle < min(row.value, row.original)


def test_metric_without_its_arrays_says_how_to_get_them(computed: dict[str, MetricResult]) -> None:
    row = computed["js_to_retrained"]
    assert row.value is None
    assert "capture level 2" in row.not_computed
    assert "`capture` of 2 or more in its competition file's [report]" in row.not_computed


@pytest.mark.parametrize("file", [*sorted(FILES_READ), "results/one"])
def test_damaged_arrays_give_no_metric(database, competition, split_dir, tmp_path, sent, *, file):
    """A bit in the last number of each file that metrics read: it can still be read."""
    storage = Storage(tmp_path.as_uri())
    evaluation = scored_evaluation(database, competition, storage, split_dir)
    path = (
        tmp_path / file
        if file.startswith("results")
        else storage.local_folder(split_key(competition.slug, "public")) / file
    )
    if not path.exists():
        pytest.skip(f"this split has no {file}")
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x01
    path.write_bytes(content)
    context = SimpleNamespace(database=database, storage=storage, settings=Settings())
    with pytest.raises((DamagedSplit, HostFault), match=f"{path.name}|results/one"):
        compute_metrics(context, evaluation)  # type: ignore[arg-type]
    with database.read() as session:
        assert [row for row in session.scalars(select(MetricResult)) if row.computed_at] == []


PROBED: dict[str, Any] = {
    "keep_weights": 2,
    "metrics": [{"id": name} for name in ("klom", "relearn_time", "weight_distance")],
}


@pytest.fixture(scope="module")
def probed_split_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("probed") / "public"
    prepare_split(competition_file(report=PROBED), "public", out)
    return out


def kept_originals(split_dir: Path, n_models: int) -> bytes:
    """Return the original model as often as references are probed, then models of zeros."""
    weights = {
        name: torch.stack([tensor if number < PROBED["keep_weights"] else 0 * tensor for number in range(n_models)])
        for name, tensor in load_original(split_dir).items()
    }
    return safetensors.torch.save(weights)


def probed_rows(
    database: Database, competition: Competition, tmp_path: Path, split_dir: Path, *, weights: bytes | None
) -> dict[str, MetricResult]:
    storage = Storage(tmp_path.as_uri())
    evaluation = scored_evaluation(database, competition, storage, split_dir, report=PROBED, weights=weights)
    settings = Settings()
    context = SimpleNamespace(database=database, storage=storage, settings=settings)
    assert compute_metrics(context, evaluation) == 3  # type: ignore[arg-type]
    with database.read() as session:
        return {row.metric_id: row for row in session.scalars(select(MetricResult))}


@pytest.mark.parametrize("n_kept", [2, 1, 3])
def test_probed_runs_that_are_the_original_have_its_values(
    database: Database,
    competition: Competition,
    probed_split_dir: Path,
    tmp_path: Path,
    sent: list[str],
    *,
    n_kept: int,
) -> None:
    """Also if other numbers of runs are kept than references were probed: as many as both are compared."""
    weights = kept_originals(probed_split_dir, n_kept)
    rows = probed_rows(database, competition, tmp_path, probed_split_dir, weights=weights)
    for name in ("relearn_time", "weight_distance"):
        row = rows[name]
        assert row.not_computed == ""
        assert row.oracle is not None
        assert row.oracle > 0.0
    assert rows["relearn_time"].value == rows["relearn_time"].original == 0.0
    if n_kept > 1:
        assert rows["weight_distance"].value == rows["weight_distance"].original


def test_split_without_probed_references_says_how_to_make_them(database, competition, split_dir, tmp_path, sent):
    rows = probed_rows(database, competition, tmp_path, split_dir, weights=kept_originals(split_dir, 2))
    assert rows["klom"].value is not None
    for name in ("relearn_time", "weight_distance"):
        assert rows[name].value is None
        assert "prepare the split again with `lethe competition prepare`" in rows[name].not_computed


def test_runs_without_kept_weights_ask_for_another_evaluation(database, competition, probed_split_dir, tmp_path, sent):
    rows = probed_rows(database, competition, tmp_path, probed_split_dir, weights=None)
    assert rows["klom"].value is not None
    assert "evaluate the submission once more" in rows["relearn_time"].not_computed


@pytest.mark.parametrize("error", [RuntimeError("no memory"), HostFault("no storage")])
def test_probes_that_fail_are_a_sentence_unless_the_host_is_at_fault(
    database: Database,
    competition: Competition,
    probed_split_dir: Path,
    tmp_path: Path,
    sent: list[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    error: Exception,
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(metrics_job, "probed_runs", fail)
    if isinstance(error, HostFault):
        with pytest.raises(HostFault):
            probed_rows(database, competition, tmp_path, probed_split_dir, weights=None)
        with database.read() as session:
            assert {row.attempts for row in session.scalars(select(MetricResult)) if not row.computed_at} == {0}
        return
    rows = probed_rows(database, competition, tmp_path, probed_split_dir, weights=None)
    assert rows["relearn_time"].not_computed == "could not be computed (RuntimeError)"
    assert rows["klom"].value is not None


def test_probes_end_with_their_worker_and_wait_for_another(
    database: Database,
    competition: Competition,
    probed_split_dir: Path,
    tmp_path: Path,
    sent: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.evaluation.metrics_job.graceful_shutdown.is_over", lambda: True)
    with pytest.raises(HostFault, match="the worker stops"):
        probed_rows(database, competition, tmp_path, probed_split_dir, weights=kept_originals(probed_split_dir, 2))
    with database.read() as session:
        rows = session.scalars(select(MetricResult)).all()
    assert {row.metric_id for row in rows if row.computed_at is None} == {"relearn_time", "weight_distance"}


def test_others_are_stored_before_the_probes_and_no_message_is_sent_meanwhile(
    database: Database,
    competition: Competition,
    probed_split_dir: Path,
    tmp_path: Path,
    sent: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, Any] = {}
    probe = metrics_job.probed_runs

    def looked_at(*arguments: Any) -> Any:
        with database.read() as session:
            rows = session.scalars(select(MetricResult)).all()
            seen["computed"] = [row.metric_id for row in rows if row.computed_at]
            seen["lost"] = metric_results.lost(session, lease_s=60.0)
        return probe(*arguments)

    monkeypatch.setattr(metrics_job, "probed_runs", looked_at)
    monkeypatch.setattr(metric_results, "_row", long_ago(metric_results._row))
    probed_rows(database, competition, tmp_path, probed_split_dir, weights=kept_originals(probed_split_dir, 2))
    assert seen == {"computed": ["klom"], "lost": []}


def test_metric_that_ends_its_worker_is_given_up_and_the_others_are_computed(
    database: Database,
    competition: Competition,
    split_dir: Path,
    tmp_path: Path,
    sent: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        """As a process that is ended: nothing more is done."""

    def computed(inputs: Any, asked: metric_results.WaitingMetric, work: Any) -> metric_results.ComputedMetric:
        if asked.metric_id == "klom":
            raise Killed
        return compute(inputs, asked, work)

    compute, settings = metrics_job._computed, Settings()
    storage = Storage(tmp_path.as_uri())
    evaluation = scored_evaluation(database, competition, storage, split_dir)
    context: Any = SimpleNamespace(database=database, storage=storage, settings=settings)
    monkeypatch.setattr(metrics_job, "_computed", computed)
    for _ in range(settings.max_attempts):
        with pytest.raises(Killed):
            compute_metrics(context, evaluation)
    compute_metrics(context, evaluation)
    with database.read() as session:
        rows = {row.metric_id: row for row in session.scalars(select(MetricResult))}
        assert metric_results.waiting(session, evaluation) == []
    assert rows.pop("klom").not_computed == "3 attempts at it ended with their worker"
    assert rows.pop("js_to_retrained").not_computed.startswith("array"), rows  # which this split does not store
    assert [row.metric_id for row in rows.values() if row.not_computed] == []


def long_ago(make: Any) -> Any:
    def row(*arguments: Any) -> MetricResult:
        found: MetricResult = make(*arguments)
        found.requested_at = now() - timedelta(minutes=2)
        return found

    return row
