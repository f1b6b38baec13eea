"""From the stored outputs of a shard's runs to a score in the table of its split, and to tied groups of the board."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sqlalchemy import delete, select
from structlog.contextvars import get_contextvars

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import ORIGINAL_OUTPUTS, read_outputs, read_stored_outputs
from lethe.evaluation.ranking import RankingValue, score_outputs, secret_attack_seed
from lethe.evaluation.shard_outputs import ShardOutputs
from lethe.metrics.scoring.calibration import Doubt, doubt_about
from lethe.metrics.scoring.epsilon import per_example_epsilon
from lethe.metrics.scoring.resampling import Replicates
from lethe.preparation.prepare import prepare_split
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.db import Database, clock, now
from server.evaluations import lease_reaper
from server.logging import current_request_id as request_id
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, EvaluationState, PrivateScore, PublicScore, Shard
from server.models.submission import Submission
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from server.storage import Storage, split_key
from tests.lethe.conftest import competition
from tests.server.evaluations.conftest import N, add_submission
from tests.support.leases import add_done_shard, outputs, stored_split
from worker import tasks
from worker.evaluation.scoring_job import (
    compared_with,
    group_ties,
    rank_outputs,
    replicates_as_data,
    replicates_from_data,
    require_ranking,
    score_evaluation,
)

TABLES = {Visibility.PUBLIC: PublicScore, Visibility.PRIVATE: PrivateScore}


class Job:
    """An evaluation whose one shard is done, and what scores it."""

    def __init__(self, database: Database, competition: Competition, storage: Storage) -> None:
        self.database, self.competition, self.id = database, competition, ""
        self.context: Any = SimpleNamespace(database=database, storage=storage, settings=Settings())

    def wait(self, given: ShardOutputs, visibility: Visibility = Visibility.PUBLIC) -> None:
        """Let the evaluation of a new submission wait for its score."""
        manifest_sha256 = stored_split(self.context.storage, split_key(self.competition.slug, visibility.value))
        add_submission(self.database, self.competition, "ada", visibility=visibility.value)
        with self.database.write() as session:
            session.execute(delete(Shard))
            evaluation = session.scalars(select(Evaluation)).one()
            evaluation.state, self.id = EvaluationState.SCORING.value, evaluation.id
            session.get_one(Split, evaluation.split_id).manifest_sha256 = manifest_sha256
            add_done_shard(session, self.context.storage, evaluation, given)

    def score(self) -> bool:
        return score_evaluation(self.context, self.id)

    def found(self) -> tuple[Evaluation, list[PublicScore]]:
        with self.database.read() as session:
            return session.get_one(Evaluation, self.id), list(session.scalars(select(PublicScore)))


@pytest.fixture
def empty(database, competition, sent, tmp_path):
    return Job(database, competition, Storage((tmp_path / "storage").as_uri()))


@pytest.fixture
def job(empty):
    empty.wait(outputs(1))
    return empty


@pytest.mark.parametrize("visibility", list(Visibility))
def test_score_stores_each_epsilon_in_the_table_of_its_split(empty, visibility):
    empty.wait(outputs(1), visibility)
    assert empty.score()
    with empty.database.read() as session:
        code = session.scalars(select(Submission)).one().content_sha256
        file = stored_file(session.scalars(select(Competition)).one())
        seed = secret_attack_seed(file, visibility, code)
        expected = per_example_epsilon(outputs(1).confidences, outputs(0).confidences, seed=seed)
        row = session.scalars(select(TABLES[visibility])).one()
        assert np.array_equal(np.frombuffer(row.epsilon or b"", "<f4"), expected.astype(np.float32))
        assert row.details["n_forget"] == 6
        above = outputs(1).confidences.mean(axis=0) > outputs(0).confidences.mean(axis=0)
        assert row.details["share_above"] == above.mean()
        assert row.details["spread_ratio"] > 0.0
        others = [table for table in TABLES.values() if table is not TABLES[visibility]]
        assert [session.scalars(select(table)).all() for table in others] == [[]]


@pytest.mark.parametrize(
    ("retraining_cpu_s", "cpu_time_s", "expected"),
    [
        (None, np.full(N, 0.5), {"s": 0.5, "limit_s": 5.0, "of": "clock"}),
        (10.0, np.full(N, 0.5), {"s": 0.5, "limit_s": 3.25, "of": "processor"}),
        (10.0, None, None),  # of an organiser's own machine: the clock says nothing about a limit of the processor
    ],
)
def test_time_of_runs_is_kept_beside_the_limit_of_its_kind(empty, retraining_cpu_s, cpu_time_s, expected):
    empty.wait(replace(outputs(1), wall_time_s=np.full(N, 0.5), cpu_time_s=cpu_time_s))
    with empty.database.write() as session:
        split = session.scalars(select(Split).where(Split.visibility == "public")).one()
        split.retraining_cpu_s, split.start_cpu_s = retraining_cpu_s, 0.25
    assert empty.score()
    assert empty.found()[1][0].details["run_time"] == expected


def test_one_worker_scores_an_evaluation_and_another_where_that_one_is_lost(job):
    with job.database.write() as session:
        assert scores.claim(session, job.id, lease_s=60.0)
    assert not job.score()
    assert job.found()[1] == []
    with job.database.write() as session:
        session.get_one(Evaluation, job.id).scoring_until = now() - timedelta(seconds=1)
    assert job.score()
    assert not job.score()
    with job.database.write() as session:
        evaluation = session.get_one(Evaluation, job.id)
        assert evaluation.scoring_until is None
        evaluation.scoring_until = now() - timedelta(seconds=1)  # lost while it compared families
        session.scalars(select(PublicScore)).one().details |= {"flags": {}}
    assert not job.score()
    evaluation, [row] = job.found()
    assert row.details["flags"]["reasons"]
    assert evaluation.scoring_until is None


def test_scorer_that_fails_after_it_lost_its_lease_leaves_the_next_ones(job, monkeypatch):
    def lose(*_: object) -> None:
        with job.database.write() as session:
            session.get_one(Evaluation, job.id).scoring_until = clock(session) - timedelta(seconds=1)
            session.flush()
            assert scores.claim(session, job.id, lease_s=60.0) == 2
        raise ConnectionError

    monkeypatch.setattr("worker.evaluation.scoring_job.read_results", lose)
    with pytest.raises(ConnectionError):
        job.score()
    with job.database.read() as session:
        assert (session.get_one(Evaluation, job.id).scoring_until or now()) > clock(session)
    assert not job.score()


def test_comparison_that_fails_is_made_by_another_worker(job, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(scores, "record_doubt", Mock(side_effect=ConnectionError))
        with pytest.raises(ConnectionError):
            job.score()
    with job.database.write() as session:
        evaluation = session.get_one(Evaluation, job.id)
        assert evaluation.state == EvaluationState.SCORED.value
        assert evaluation.scoring_until is not None  # retried when the lease expires
        evaluation.scoring_until = clock(session)
        session.flush()
        later = clock(session) + timedelta(minutes=1)
        assert lease_reaper.sweep(session, later, max_attempts=3).scores_asked == 1
    assert not job.score()
    assert job.found()[0].scoring_until is None


def test_a_score_does_not_wait_for_other_families(job, monkeypatch):
    recorded = []

    def look(*sides: Any, compares_families: bool = True, **models: Any) -> Doubt:
        if compares_families:
            recorded.append(job.found()[1][0].details["flags"]["disagreement"])
            return Doubt(0.5, above_oracle=False, copied_models=0, reasons=("one",))
        return doubt_about(*sides, compares_families=False, **models)

    monkeypatch.setattr("worker.evaluation.scoring_job.doubt_about", look)
    assert job.score()
    assert recorded == [None]
    doubt = scores.ScoreDoubt.read(job.found()[1][0].details)
    assert doubt == scores.ScoreDoubt(0.5, ("one",), was_unconfirmed=False)


@pytest.mark.parametrize(("module", "name"), [("scoring_job", "score_evaluation"), ("metrics_job", "compute_metrics")])
def test_task_continues_the_trace_of_the_upload(job, monkeypatch, module, name):
    with job.database.write() as session:
        submission = session.scalars(select(Submission)).one()
        submission.request_id = "abcdefgh"
    monkeypatch.setattr(tasks, "get_context", lambda: job.context)
    monkeypatch.setattr(tasks, "_heartbeat", nullcontext)
    seen: list[dict[str, Any]] = []
    spans: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(
        tasks.telemetry, "span", lambda name, **about: nullcontext(spans.append((name, {**about, "id": request_id()})))
    )
    monkeypatch.setattr(f"worker.tasks.{module}.{name}", lambda *_: seen.append(get_contextvars()) or True)
    assert getattr(tasks, name)(job.id)
    trace = {"request_id": "abcdefgh", "submission": submission.id, "evaluation": job.id}
    assert [found | trace for found in seen] == seen
    [(_, about)] = spans
    assert about == {"submission": submission.id, "evaluation": job.id, "id": "abcdefgh"}
    assert request_id() == "", "nothing is left for the next task"
    assert getattr(tasks, name)("gone"), "an evaluation that is gone has no trace"


def replicates(seed: int, *, level: float) -> Replicates:
    values = level + 0.01 * np.random.default_rng(seed).standard_normal(40)
    return Replicates(forgetting_quality=values, headline=values, factor=1.0, seed=0, n_models=512)


def test_teams_that_the_test_does_not_tell_apart_share_a_group(database, competition, sent):
    for seed, (team, level) in enumerate({"first": 0.300, "second": 0.299, "far": 0.100}.items()):
        submission, drawn = add_submission(database, competition, team), replicates(seed, level=level)
        with database.write() as session:
            evaluation = session.query(Evaluation).filter_by(submission_id=submission.id).one()
            evaluation.state, split_id = EvaluationState.SCORING.value, evaluation.split_id
            parts = {"forgetting_quality": level, "retain_ratio": 1.0, "test_ratio": 1.0, "details": {}}
            record = ScoreRecord(final_score=level, **parts, replicates=replicates_as_data(drawn))
            assert scores.record(session, evaluation.id, record)
            stored = session.query(PublicScore).filter_by(evaluation_id=evaluation.id).one().replicates
        drawn.require_paired(replicates_from_data(stored))
        np.testing.assert_array_equal(drawn.headline, replicates_from_data(stored).headline)
    assert "lethe.group_ties" in sent
    assert group_ties(database, split_id) == 3
    with database.read() as session:
        groups = {row.final_score: row.tied_group for row in session.query(PublicScore)}
    assert groups == {0.300: 0, 0.299: 0, 0.100: 1}


N = 6
METRICS = ["accuracy_gap", "klom", "retdev", "rte"]


def file(**ranking: object) -> CompetitionFile:
    return competition(
        n_models=N,
        training={"epochs": 12},
        scoring={"bootstrap_resamples": 20},
        report={"metrics": METRICS},
        ranking=ranking,
    )


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranked") / "public"
    prepare_split(file(), "public", out)
    return out


def runs(split: Path, kind: str) -> ShardOutputs:
    """Return outputs of the oracle, or of runs that all gave the original model."""
    if kind == "oracle":
        stored, repeats = read_outputs(split, "oracle"), 1
    else:
        stored, repeats = read_stored_outputs(split / ORIGINAL_OUTPUTS)[0], N
    own = {name: np.repeat(values, repeats, axis=0) for name, values in stored.arrays().items()}
    named = {name: own.pop(name) for name in ("confidences", "retain_accuracy", "test_accuracy", "class_accuracy")}
    return ShardOutputs(**named, wall_time_s=np.ones(N), captured=own)


def ranked(split: Path, asked: CompetitionFile, kind: str) -> RankingValue:
    unlearned, retrained, scoring = runs(split, kind), compared_with(split, "retrained"), asked.scoring
    oracle = score_outputs(compared_with(split, "oracle"), retrained, scoring=scoring)
    found = score_outputs(unlearned, retrained, scoring=scoring)
    return rank_outputs(asked, found, unlearned, oracle=oracle, split_dir=split, scoring=scoring, attack_seed=0)


@pytest.mark.parametrize("by", ["klom", ["klom", "retdev"]])
@pytest.mark.parametrize("combine", ["mean", "harmonic-mean", "worst"])
def test_references_are_the_ends_of_the_scale(split: Path, by: object, combine: str) -> None:
    asked = file(by=by, combine=combine)
    assert ranked(split, asked, "oracle").value == pytest.approx(1.0)
    assert ranked(split, asked, "original").value == pytest.approx(0.0)


def test_score_alone_is_the_published_one(split: Path) -> None:
    retrained, asked = compared_with(split, "retrained"), file()
    expected = score_outputs(compared_with(split, "oracle"), retrained, scoring=asked.scoring)
    found = ranked(split, asked, "oracle")
    assert (found.value, found.interval) == (expected.headline, expected.interval)


def test_preparation_refuses_a_ranking_that_cannot_order(split: Path) -> None:
    manifest, asked = Manifest.read(split), file(by="klom")
    retrained = compared_with(split, "retrained")
    oracle = score_outputs(compared_with(split, "oracle"), retrained, scoring=asked.scoring)
    before = sorted(path.name for path in split.iterdir())
    require_ranking(asked, split, manifest, oracle=oracle, attack_seed=0)
    with pytest.raises(InvalidSplit, match="rte has no value for exact retraining"):
        require_ranking(file(by=["klom", "rte"]), split, manifest, oracle=oracle, attack_seed=0)
    assert sorted(path.name for path in split.iterdir()) == before
