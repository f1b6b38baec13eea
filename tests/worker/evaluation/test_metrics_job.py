"""Metrics beside the score through the real task, on a prepared split with captured arrays."""

import hashlib
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import safetensors.torch
import torch
from sqlalchemy import delete, select

from lethe.competition.file import CompetitionFile
from lethe.data.errors import DamagedSplit
from lethe.errors import HostFault
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.model_outputs import FILES_READ
from lethe.evaluation.shard_outputs import ShardOutputs, stacked
from lethe.preparation.prepare import prepare_split
from server.config import Settings
from server.db import Database, now
from server.evaluations.results import weights_key
from server.metric_results import metric_results
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, EvaluationState, MetricResult, Shard
from server.storage import Storage, split_key
from tests.lethe.conftest import competition as competition_file
from tests.server.evaluations.conftest import add_submission
from tests.support.leases import add_done_shard, flip_a_byte
from worker.evaluation import metrics_job
from worker.evaluation.metrics_job import compute_metrics

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


class Job:
    """Scored evaluations of runs that returned the original model, and the task that computes their metrics."""

    def __init__(self, database: Database, competition: Competition, storage: Storage) -> None:
        self.database, self.competition = database, competition
        self.context: Any = SimpleNamespace(database=database, storage=storage, settings=Settings())
        self.split = storage.local_folder(split_key(competition.slug, "public"))

    def scored(self, split_dir: Path, report: dict[str, Any] = REPORT, weights: bytes | None = None) -> str:
        """Return a new evaluation on a prepared split."""
        storage, submission = self.context.storage, add_submission(self.database, self.competition, "ada")
        shutil.copytree(split_dir, self.split, dirs_exist_ok=True)
        with self.database.write() as session:
            stored = session.get_one(Competition, self.competition.id)
            stored.config = stored.config | {"report": report}
            evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission.id)).one()
            evaluation.n_runs, evaluation.state = N, EvaluationState.SCORED.value
            manifest_sha256 = hashlib.sha256((split_dir / "manifest.json").read_bytes()).hexdigest()
            session.get_one(Split, evaluation.split_id).manifest_sha256 = manifest_sha256
            outputs = returned_originals(split_dir)
            if weights is not None:
                key = weights_key(f"evaluations/{evaluation.id}/0")
                outputs = replace(outputs, weights_sha256=storage.write(key, weights))
            session.execute(delete(Shard))
            add_done_shard(session, storage, evaluation, outputs)
            metric_results.request(session, evaluation, CompetitionFile.model_validate(stored.config))
            return evaluation.id

    def rows(self) -> dict[str, MetricResult]:
        with self.database.read() as session:
            return {row.metric_id: row for row in session.scalars(select(MetricResult))}

    def probed(self, split_dir: Path, *, n_kept: int = 0) -> dict[str, MetricResult]:
        """Compute metrics of which two need kept weights. Return the results."""
        weights = kept_originals(split_dir, n_kept) if n_kept else None
        assert compute_metrics(self.context, self.scored(split_dir, PROBED, weights)) == len(PROBED["metrics"])
        return self.rows()


@pytest.fixture
def job(database, competition, sent, tmp_path):
    return Job(database, competition, Storage(tmp_path.as_uri()))


def test_values_stand_beside_oracle_and_original(job, split_dir):
    evaluation = job.scored(split_dir)
    assert [compute_metrics(job.context, evaluation) for _ in range(2)] == [len(ASKED), 0]
    rows = job.rows()
    for name in ("accuracy_gap", "retdev", "klom"):
        assert rows[name].not_computed == ""
        assert rows[name].value == pytest.approx(rows[name].original), "the submission returned the original"
        assert rows[name].oracle is not None
    assert rows["accuracy_gap"].value > rows["accuracy_gap"].oracle
    epsilon = rows["epsilon_histogram"]
    assert epsilon.oracle < min(epsilon.value, epsilon.original), "it is constant"
    without_arrays = rows["js_to_retrained"]
    assert without_arrays.value is None
    assert "`capture` of 2 or more in its competition file's [report]" in without_arrays.not_computed


@pytest.mark.parametrize("file", [*sorted(FILES_READ), "the result"])
def test_damaged_arrays_give_no_metric(job, split_dir, tmp_path, file):
    """A bit in the last number of each file that metrics read: it can still be read."""
    evaluation = job.scored(split_dir)
    path = tmp_path / f"evaluations/{evaluation}/0" if file == "the result" else job.split / file
    if not path.exists():
        pytest.skip(f"this split has no {file}")
    flip_a_byte(path, -1)
    with pytest.raises((DamagedSplit, HostFault), match=f"{path.name}|evaluations/{evaluation}"):
        compute_metrics(job.context, evaluation)
    assert [row for row in job.rows().values() if row.computed_at] == []


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


@pytest.mark.parametrize("n_kept", [2, 1, 3])
def test_probed_runs_that_are_the_original_have_its_values(job, probed_split_dir, n_kept):
    """Also if other numbers of runs are kept than references were probed: as many as both are compared."""
    rows = job.probed(probed_split_dir, n_kept=n_kept)
    for name in ("relearn_time", "weight_distance"):
        assert rows[name].not_computed == ""
        assert (rows[name].oracle or 0.0) > 0.0
    assert rows["relearn_time"].value == rows["relearn_time"].original == 0.0
    if n_kept > 1:
        assert rows["weight_distance"].value == rows["weight_distance"].original


@pytest.mark.parametrize(
    ("split", "n_kept", "said"),
    [
        ("split_dir", 2, "prepare the split again with `lethe competition prepare`"),
        ("probed_split_dir", 0, "evaluate the submission once more"),
    ],
)
def test_probes_without_references_or_weights_say_how_to_get_them(job, request, split, n_kept, said):
    rows = job.probed(request.getfixturevalue(split), n_kept=n_kept)
    assert rows["klom"].value is not None
    for name in ("relearn_time", "weight_distance"):
        assert rows[name].value is None
        assert said in rows[name].not_computed


def test_probes_that_fail_are_a_sentence_unless_the_host_is_at_fault(job, probed_split_dir, monkeypatch):
    monkeypatch.setattr(metrics_job, "probed_runs", Mock(side_effect=RuntimeError("no memory")))
    rows = job.probed(probed_split_dir)
    assert rows["relearn_time"].not_computed == "could not be computed (RuntimeError)"
    assert rows["klom"].value is not None


@pytest.mark.parametrize("how", ["no storage", "the worker stops"])
def test_probes_that_a_host_fault_ends_wait_for_another_worker(job, probed_split_dir, monkeypatch, how):
    if how == "no storage":
        monkeypatch.setattr(metrics_job, "probed_runs", Mock(side_effect=HostFault(how)))
    else:
        monkeypatch.setattr("worker.evaluation.metrics_job.graceful_shutdown.is_over", lambda: True)
    with pytest.raises(HostFault, match=how):
        job.probed(probed_split_dir, n_kept=2)
    waiting = {row.metric_id: row.attempts for row in job.rows().values() if row.computed_at is None}
    assert waiting == {"relearn_time": 0, "weight_distance": 0}


def test_others_are_stored_before_the_probes_and_no_message_is_sent_meanwhile(job, probed_split_dir, monkeypatch):
    seen: dict[str, Any] = {}
    probe, make = metrics_job.probed_runs, metric_results._row

    def looked_at(*arguments: Any) -> Any:
        seen["computed"] = [row.metric_id for row in job.rows().values() if row.computed_at]
        with job.database.read() as session:
            seen["lost"] = metric_results.lost(session, lease_s=60.0)
        return probe(*arguments)

    def long_ago(*arguments: Any) -> MetricResult:
        row: MetricResult = make(*arguments)
        row.requested_at = now() - timedelta(minutes=2)
        return row

    monkeypatch.setattr(metrics_job, "probed_runs", looked_at)
    monkeypatch.setattr(metric_results, "_row", long_ago)
    job.probed(probed_split_dir, n_kept=2)
    assert seen == {"computed": ["klom"], "lost": []}


def test_metric_that_ends_its_worker_is_given_up_and_the_others_are_computed(job, split_dir, monkeypatch):
    class Killed(BaseException):
        """As a process that is ended: nothing more is done."""

    def computed(inputs: Any, asked: metric_results.WaitingMetric, work: Any) -> metric_results.ComputedMetric:
        if asked.metric_id == "klom":
            raise Killed
        return compute(inputs, asked, work)

    compute, evaluation = metrics_job._computed, job.scored(split_dir)
    monkeypatch.setattr(metrics_job, "_computed", computed)
    for _ in range(job.context.settings.max_attempts):
        with pytest.raises(Killed):
            compute_metrics(job.context, evaluation)
    compute_metrics(job.context, evaluation)
    with job.database.read() as session:
        assert metric_results.waiting(session, evaluation) == []
    rows = job.rows()
    assert rows.pop("klom").not_computed == "3 attempts at it ended with their worker"
    assert rows.pop("js_to_retrained").not_computed.startswith("array"), rows  # which this split does not store
    assert [row.metric_id for row in rows.values() if row.not_computed] == []
