"""A stored result that is damaged or lost: its runs are made again, and the evaluation is scored."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, update

from lethe.data.errors import DamagedSplit
from lethe.evaluation.model_outputs import OUTPUT_PATHS
from lethe.runtime.error_classes import ErrorClass
from server.competitions import split_leases, stalled_preparations
from server.competitions.stalled_preparations import CHECKING
from server.config import Settings
from server.db import clock
from server.evaluations import leases
from server.evaluations.claimed_shard import ShardFailure
from server.models.account import Account, AuditEvent, Role
from server.models.competition import Split, SplitState
from server.models.evaluation import Evaluation, PublicScore, Shard
from server.models.submission import Fault, Stage, Submission
from server.storage import split_key
from server.submission_analysis import model_outputs
from tests.server.conftest import server
from tests.server.evaluations.conftest import N
from tests.support.instance import Instance
from tests.support.stored_outputs import outputs, stored_split
from worker.evaluation.run_results import ResultsMadeAgain, read_results
from worker.evaluation.scoring_job import oracle_score, score_evaluation
from worker.split_storage.local_splits import repair_if_damaged

__all__ = ["server"]


@pytest.fixture
def evaluation(server: Instance) -> str:
    """Return an evaluation of one shard whose runs are done, and that waits for its score."""
    server.competition(organiser=server.account("olga", Role.ORGANISER))
    manifest_sha256 = stored_split(server.storage, split_key("digits", "public"))
    submission = server.submit(server.participant("ada")).json()["id"]
    with server.database.write() as session:
        split = session.scalars(select(Split).where(Split.visibility == "public")).one()
        split.manifest_sha256 = manifest_sha256
        found = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
        shard = session.scalars(select(Shard).where(Shard.evaluation_id == found.id)).one()
        shard.kind, found.n_runs = "runs", N
        shard.first_run, shard.n_runs = 0, N
        evaluation = found.id
    close(server, seed=1)
    return evaluation


def close(server: Instance, *, seed: int) -> None:
    """Do what a worker does that claims the shard and runs it."""
    with server.database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
        assert shard is not None
        sha256 = server.storage.write(shard.result_key, outputs(seed).to_bytes())
        stored: dict[str, Any] = {"result_key": shard.result_key, "result_sha256": sha256}
        assert leases.close(session, shard, **stored, wall_time_s=1, verified_share=0)


def score(server: Instance, evaluation: str) -> bool:
    context: Any = SimpleNamespace(database=server.database, storage=server.storage, settings=Settings())
    return score_evaluation(context, evaluation)


def file_of_result(server: Instance) -> Path:
    with server.database.read() as session:
        return Path(server.storage.local_folder(str(session.scalars(select(Shard.result_key)).one())))


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


def stages(server: Instance) -> tuple[str, str]:
    with server.database.read() as session:
        return session.scalars(select(Evaluation.state)).one(), session.scalars(select(Submission.stage)).one()


@pytest.mark.parametrize("damage", [flip_a_byte, Path.unlink])
def test_runs_of_a_damaged_result_are_made_again(server: Instance, evaluation: str, damage: Any) -> None:
    damage(file_of_result(server))
    with pytest.raises(ResultsMadeAgain):
        score(server, evaluation)
    assert stages(server) == ("running", Stage.RUNNING)
    close(server, seed=1)
    assert stages(server) == ("scoring", Stage.SCORING)
    assert score(server, evaluation) is True
    assert stages(server) == ("scored", Stage.SCORED)
    with server.database.read() as session:
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "submission.results_damaged")).one()
        assert event.data["runs"] == N


def test_result_that_is_damaged_after_the_score_leaves_the_score(server: Instance, evaluation: str) -> None:
    assert score(server, evaluation) is True
    damage_after_the_score(server, evaluation)
    assert stages(server) == ("scored", Stage.SCORED)
    close(server, seed=1)
    assert stages(server) == ("scored", Stage.SCORED)
    assert file_of_result(server).is_file()


def test_score_stays_where_damaged_runs_cannot_be_made_again(server: Instance, evaluation: str) -> None:
    assert score(server, evaluation) is True
    damage_after_the_score(server, evaluation)
    failure = ShardFailure(fault=Fault.PARTICIPANT, error_class=ErrorClass.EXCEPTION, message="it broke", run=0)
    with server.database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
        assert shard is not None
        assert leases.fail(session, shard, failure, runs_done=0)
    assert stages(server) == ("scored", Stage.SCORED)
    with server.database.read() as session:
        assert len(session.scalars(select(PublicScore)).all()) == 1


def damage_after_the_score(server: Instance, evaluation: str) -> None:
    """Damage the result, and read it as the task of the metrics does."""
    flip_a_byte(file_of_result(server))
    context: Any = SimpleNamespace(database=server.database, storage=server.storage, settings=Settings())
    with server.database.read() as session:
        shards = session.scalars(select(Shard).where(Shard.evaluation_id == evaluation)).all()
    with pytest.raises(ResultsMadeAgain, match="of 1 shards"):
        read_results(context, evaluation, shards)


def damage_the_split(server: Instance, name: str = OUTPUT_PATHS["retrained"]) -> None:
    flip_a_byte(Path(server.storage.local_folder(f"{split_key('digits', 'public')}/{name}")))


@pytest.mark.parametrize("name", [OUTPUT_PATHS["retrained"], OUTPUT_PATHS["oracle"], "manifest.json"])
def test_damaged_file_of_a_split_is_made_again(server: Instance, evaluation: str, name: str) -> None:
    oracle_score.cache_clear()
    damage_the_split(server, name)
    with server.database.write() as session:
        session.execute(update(Split).values(retraining_time_s=1.0))
    for _ in range(2):  # it is asked for once
        with pytest.raises(DamagedSplit):
            score(server, evaluation)
    with server.database.read() as session:
        split = session.scalars(select(Split).where(Split.visibility == "public")).one()
        assert (split.state, split.stage) == (SplitState.PENDING, CHECKING)
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "split.damaged")).one()
        assert event.data["split"] == "public"
        assert split_leases.forgotten(session, clock(session)) == [split.id]


def test_split_that_is_damaged_again_and_again_is_not_checked_for_ever(server: Instance, evaluation: str) -> None:
    oracle_score.cache_clear()
    damage_the_split(server)
    for _ in range(5):
        with pytest.raises(DamagedSplit):
            score(server, evaluation)
        with server.database.write() as session:
            session.execute(update(Split).values(state=SplitState.READY.value))
    with server.database.read() as session:
        asked = session.scalars(select(AuditEvent).where(AuditEvent.action == "split.damaged")).all()
        assert len(asked) == stalled_preparations.CHECKS_PER_HOUR


def test_shard_that_meets_a_damaged_split_has_it_checked(server: Instance, evaluation: str) -> None:
    with server.database.read() as session:
        split_id = session.get_one(Evaluation, evaluation).split_id
    context: Any = SimpleNamespace(database=server.database, settings=Settings())
    with pytest.raises(DamagedSplit, match="gone"), repair_if_damaged(context, evaluation):
        raise DamagedSplit("gone")
    with server.database.read() as session:
        assert session.get_one(Split, split_id).state == SplitState.PENDING


def test_analysis_of_damaged_outputs_is_shown_without_them(server: Instance, evaluation: str) -> None:
    assert score(server, evaluation) is True
    with server.database.write() as session:
        olga = session.scalars(select(Account).where(Account.name == "olga")).one()
        submission = session.scalars(select(Submission.id)).one()
    page = f"/api/v1/competitions/digits/submissions/{submission}/analysis"
    for damage in (damage_the_split, lambda server: flip_a_byte(file_of_result(server))):
        model_outputs._read.cache_clear()
        damage(server)
        assert server.client.get(page, headers=server.headers(olga)).status_code == 200
