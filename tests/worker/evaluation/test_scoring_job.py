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
from numpy.typing import NDArray
from sqlalchemy import select
from structlog.contextvars import get_contextvars

from lethe.competition.visibility import Visibility
from lethe.data.errors import DamagedSplit
from lethe.evaluation.model_outputs import OUTPUT_PATHS
from lethe.evaluation.ranking import secret_attack_seed
from lethe.evaluation.shard_outputs import ShardOutputs
from lethe.metrics.scoring.calibration import Doubt, doubt_about
from lethe.metrics.scoring.epsilon import per_example_epsilon
from lethe.metrics.scoring.resampling import Replicates
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.db import Database, clock, now
from server.evaluations import lease_reaper
from server.logging import current_request_id as request_id
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, EvaluationState, PrivateScore, PublicScore, Shard, ShardState
from server.models.submission import Submission
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from server.storage import Storage, split_key
from tests.server.evaluations.conftest import N, add_submission, competition, database, sent
from tests.support.stored_outputs import outputs, stored_split
from worker import tasks
from worker.evaluation.scoring_job import group_ties, replicates_as_data, replicates_from_data, score_evaluation

__all__ = ["competition", "database", "sent"]

TABLES = {Visibility.PUBLIC: PublicScore, Visibility.PRIVATE: PrivateScore}


def waiting_for_score(
    database: Database, competition: Competition, visibility: Visibility, storage: Storage, *, given: ShardOutputs
) -> str:
    """Add an evaluation whose one shard is done. Return its id."""
    manifest_sha256 = stored_split(storage, split_key(competition.slug, visibility.value))
    submission = add_submission(database, competition, "ada")
    result = given.to_bytes()
    with database.write() as session:
        split = session.scalars(select(Split).where(Split.visibility == visibility.value)).one()
        split.manifest_sha256 = manifest_sha256
        state = {"state": EvaluationState.SCORING.value, "scorer_version": "by hand", "is_current": False}
        evaluation = Evaluation(submission_id=submission.id, split_id=split.id, n_runs=N, **state)
        session.add(evaluation)
        session.flush()
        shard = {"state": ShardState.DONE.value, "first_run": 0, "n_runs": N, "runs_done": N}
        of = {"team_id": submission.team_id, "split_id": split.id, "competition_id": competition.id}
        sha256 = storage.write("results/one", result)
        stored = {"result_key": "results/one", "result_sha256": sha256}
        session.add(Shard(evaluation_id=evaluation.id, **of, **shard, **stored))
        return evaluation.id


def epsilon(stored: bytes | None) -> NDArray[np.float32]:
    assert stored is not None
    return np.frombuffer(stored, "<f4")


@pytest.mark.parametrize("visibility", list(Visibility))
def test_score_stores_each_epsilon_in_the_table_of_its_split(database, competition, sent, tmp_path, *, visibility):
    storage = Storage((tmp_path / "storage").as_uri())
    evaluation_id = waiting_for_score(database, competition, visibility, storage, given=outputs(1))
    context = SimpleNamespace(database=database, storage=storage, settings=Settings())
    assert score_evaluation(context, evaluation_id)  # type: ignore[arg-type]  # what scoring needs of a context
    with database.read() as session:
        code = session.scalars(select(Submission)).one().content_sha256
        file = stored_file(session.scalars(select(Competition)).one())
        seed = secret_attack_seed(file, visibility, code)
        expected = per_example_epsilon(outputs(1).confidences, outputs(0).confidences, seed=seed)
        row = session.scalars(select(TABLES[visibility])).one()
        assert np.array_equal(epsilon(row.epsilon), expected.astype(np.float32))
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
def test_time_of_runs_is_kept_beside_the_limit_of_its_kind(
    database: Database,
    competition: Competition,
    sent: list[str],
    tmp_path: Path,
    *,
    retraining_cpu_s: float | None,
    cpu_time_s: NDArray[np.float64] | None,
    expected: dict[str, Any] | None,
) -> None:
    storage = Storage((tmp_path / "storage").as_uri())
    given = replace(outputs(1), wall_time_s=np.full(N, 0.5), cpu_time_s=cpu_time_s)
    evaluation_id = waiting_for_score(database, competition, Visibility.PUBLIC, storage, given=given)
    with database.write() as session:
        split = session.scalars(select(Split).where(Split.visibility == "public")).one()
        split.retraining_cpu_s, split.start_cpu_s = retraining_cpu_s, 0.25
    context = SimpleNamespace(database=database, storage=storage, settings=Settings())
    assert score_evaluation(context, evaluation_id)  # type: ignore[arg-type]
    with database.read() as session:
        assert session.scalars(select(PublicScore)).one().details["run_time"] == expected


def test_one_worker_scores_an_evaluation_and_another_where_that_one_is_lost(
    database: Database, competition: Competition, sent: list[str], tmp_path: Path
) -> None:
    storage = Storage((tmp_path / "storage").as_uri())
    evaluation_id = waiting_for_score(database, competition, Visibility.PUBLIC, storage, given=outputs(1))
    context: Any = SimpleNamespace(database=database, storage=storage, settings=Settings())
    with database.write() as session:
        assert scores.claim(session, evaluation_id, lease_s=60.0)
    assert not score_evaluation(context, evaluation_id)
    with database.write() as session:
        evaluation = session.get_one(Evaluation, evaluation_id)
        assert not session.scalars(select(PublicScore)).all()
        evaluation.scoring_until = now() - timedelta(seconds=1)
    assert score_evaluation(context, evaluation_id)
    assert not score_evaluation(context, evaluation_id)
    with database.write() as session:
        evaluation = session.get_one(Evaluation, evaluation_id)
        assert evaluation.scoring_until is None
        evaluation.scoring_until = now() - timedelta(seconds=1)  # lost while it compared families
        session.scalars(select(PublicScore)).one().details |= {"flags": {}}
    assert not score_evaluation(context, evaluation_id)
    with database.read() as session:
        assert session.scalars(select(PublicScore)).one().details["flags"]["reasons"]
        assert session.get_one(Evaluation, evaluation_id).scoring_until is None


def test_scorer_that_fails_after_it_lost_its_lease_leaves_the_next_ones(
    database: Database, competition: Competition, sent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage((tmp_path / "storage").as_uri())
    evaluation_id = waiting_for_score(database, competition, Visibility.PUBLIC, storage, given=outputs(1))
    context: Any = SimpleNamespace(database=database, storage=storage, settings=Settings())

    def lose(*_: object) -> None:
        with database.write() as session:
            session.get_one(Evaluation, evaluation_id).scoring_until = clock(session) - timedelta(seconds=1)
            session.flush()
            assert scores.claim(session, evaluation_id, lease_s=60.0) == 2
        raise ConnectionError

    monkeypatch.setattr("worker.evaluation.scoring_job.read_results", lose)
    with pytest.raises(ConnectionError):
        score_evaluation(context, evaluation_id)
    with database.read() as session:
        evaluation = session.get_one(Evaluation, evaluation_id)
        assert evaluation.scoring_until is not None
        assert evaluation.scoring_until > clock(session)
    assert not score_evaluation(context, evaluation_id)


def test_comparison_that_fails_is_made_by_another_worker(
    database: Database, competition: Competition, sent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage((tmp_path / "storage").as_uri())
    evaluation_id = waiting_for_score(database, competition, Visibility.PUBLIC, storage, given=outputs(1))
    context: Any = SimpleNamespace(database=database, storage=storage, settings=Settings())
    with monkeypatch.context() as patch:
        patch.setattr(scores, "record_doubt", Mock(side_effect=ConnectionError))
        with pytest.raises(ConnectionError):
            score_evaluation(context, evaluation_id)
    with database.write() as session:
        evaluation = session.get_one(Evaluation, evaluation_id)
        assert evaluation.state == EvaluationState.SCORED.value
        assert evaluation.scoring_until is not None  # retried when the lease expires
        evaluation.scoring_until = clock(session)
        session.flush()
        later = clock(session) + timedelta(minutes=1)
        assert lease_reaper.sweep(session, later, max_attempts=3).scores_asked == 1
    assert not score_evaluation(context, evaluation_id)
    with database.read() as session:
        assert session.get_one(Evaluation, evaluation_id).scoring_until is None


def test_a_score_does_not_wait_for_other_families(
    database: Database, competition: Competition, sent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage((tmp_path / "storage").as_uri())
    evaluation_id = waiting_for_score(database, competition, Visibility.PUBLIC, storage, given=outputs(1))
    recorded = []

    def look(*sides: Any, compares_families: bool = True, **models: Any) -> Doubt:
        if compares_families:
            with database.read() as session:
                recorded.append(session.scalars(select(PublicScore)).one().details["flags"]["disagreement"])
            return Doubt(0.5, above_oracle=False, copied_models=0, reasons=("one",))
        return doubt_about(*sides, compares_families=False, **models)

    monkeypatch.setattr("worker.evaluation.scoring_job.doubt_about", look)
    assert score_evaluation(
        SimpleNamespace(database=database, storage=storage, settings=Settings()),  # type: ignore[arg-type]
        evaluation_id,
    )
    assert recorded == [None]
    with database.read() as session:
        doubt = scores.ScoreDoubt.read(session.scalars(select(PublicScore)).one().details)
    assert doubt == scores.ScoreDoubt(0.5, ("one",), was_unconfirmed=False)


@pytest.mark.parametrize("kind", ["retrained", "oracle"])
def test_damaged_outputs_give_no_score(database, competition, sent, tmp_path, *, kind):
    storage = Storage((tmp_path / "storage").as_uri())
    evaluation_id = waiting_for_score(database, competition, Visibility.PUBLIC, storage, given=outputs(1))
    path = storage.local_folder(split_key(competition.slug, "public")) / OUTPUT_PATHS[kind]  # type: ignore[index]
    content = bytearray(path.read_bytes())
    for place in range(1, 51):
        content[-place * 8 + 7] ^= 0x01  # of a number's last byte: the file can still be read
    path.write_bytes(content)
    context = SimpleNamespace(database=database, storage=storage, settings=Settings())
    with pytest.raises(DamagedSplit, match=f"{kind}/outputs.safetensors: wrong content"):
        score_evaluation(context, evaluation_id)  # type: ignore[arg-type]
    with database.read() as session:
        assert session.scalars(select(PublicScore)).all() == []
        assert session.get_one(Evaluation, evaluation_id).scoring_until is None  # asked for again soon


@pytest.mark.parametrize(("module", "job"), [("scoring_job", "score_evaluation"), ("metrics_job", "compute_metrics")])
def test_task_continues_the_trace_of_the_upload(database, competition, sent, monkeypatch, module, job):
    submission = add_submission(database, competition, "ada")
    with database.write() as session:
        session.get_one(Submission, submission.id).request_id = "abcdefgh"
        evaluation_id = session.scalars(select(Evaluation.id)).one()
    monkeypatch.setattr(tasks, "get_context", lambda: SimpleNamespace(database=database))
    monkeypatch.setattr(tasks, "_heartbeat", nullcontext)
    seen: list[dict[str, Any]] = []
    spans: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(
        tasks.telemetry, "span", lambda name, **about: nullcontext(spans.append((name, {**about, "id": request_id()})))
    )
    monkeypatch.setattr(f"worker.tasks.{module}.{job}", lambda *_: seen.append(get_contextvars()) or True)
    assert getattr(tasks, job)(evaluation_id)
    trace = {"request_id": "abcdefgh", "submission": submission.id, "evaluation": evaluation_id}
    assert [found | trace for found in seen] == seen
    [(_, about)] = spans
    assert about == {"submission": submission.id, "evaluation": evaluation_id, "id": "abcdefgh"}
    assert request_id() == "", "nothing is left for the next task"
    assert getattr(tasks, job)("gone"), "an evaluation that is gone has no trace"


def replicates(seed: int, *, level: float) -> Replicates:
    values = level + 0.01 * np.random.default_rng(seed).standard_normal(40)
    return Replicates(forgetting_quality=values, headline=values, factor=1.0, seed=0, n_models=512)


def score(database: Database, submission: Submission, level: float, seed: int) -> str:
    with database.write() as session:
        evaluation = session.query(Evaluation).filter_by(submission_id=submission.id).one()
        evaluation.state = EvaluationState.SCORING.value
        record = ScoreRecord(
            final_score=level,
            forgetting_quality=level,
            retain_ratio=1.0,
            test_ratio=1.0,
            details={},
            replicates=replicates_as_data(replicates(seed, level=level)),
        )
        assert scores.record(session, evaluation.id, record)
        return evaluation.split_id


def test_teams_that_the_test_does_not_tell_apart_share_a_group(database, competition, sent):
    levels = {"first": 0.300, "second": 0.299, "far": 0.100}
    for seed, (team, level) in enumerate(levels.items()):
        split_id = score(database, add_submission(database, competition, team), level, seed)
    assert "lethe.group_ties" in sent
    assert group_ties(database, split_id) == 3
    with database.read() as session:
        assert session.get_one(Split, split_id).visibility == "public"
        groups = {row.final_score: row.tied_group for row in session.query(PublicScore)}
    assert groups == {0.300: 0, 0.299: 0, 0.100: 1}


def test_replicates_survive_being_stored() -> None:
    before = replicates(3, level=0.2)
    after = replicates_from_data(replicates_as_data(before))
    before.require_paired(after)
    np.testing.assert_array_equal(before.headline, after.headline)
