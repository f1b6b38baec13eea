"""Stored results: damaged or lost ones are made again, whole ones are scored again by another scoring."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete, func, select, update

from lethe.data.errors import DamagedSplit
from lethe.evaluation.model_outputs import OUTPUT_PATHS
from lethe.runtime.error_classes import ErrorClass
from server.competitions import split_leases, stalled_preparations
from server.competitions.stalled_preparations import CHECKING
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.db import clock
from server.evaluations import leases
from server.evaluations.claimed_shard import ShardFailure
from server.models.account import AuditEvent, Role
from server.models.competition import Competition, Split, SplitState
from server.models.evaluation import Evaluation, PublicScore, Shard
from server.models.submission import Fault, Stage, Submission
from server.storage import split_key
from server.submission_analysis import model_outputs
from tests.server.evaluations.conftest import N
from tests.support.instance import Instance
from tests.support.leases import add_done_shard, flip_a_byte, outputs, stored_split
from worker.evaluation.run_results import ResultsMadeAgain, read_results
from worker.evaluation.scoring_job import oracle_score, score_evaluation
from worker.split_storage.local_splits import repair_if_damaged

BASE = "/api/v1/competitions/digits"
SPLIT = split_key("digits", "public")


@pytest.fixture
def olga(server: Instance) -> dict[str, str]:
    """The organiser's headers, of a competition whose public split is in storage."""
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    manifest_sha256 = stored_split(server.storage, SPLIT)
    oracle_score.cache_clear()
    with server.database.write() as session:
        session.execute(update(Split).where(Split.visibility == "public").values(manifest_sha256=manifest_sha256))
    return server.headers(organiser)


@pytest.fixture
def evaluation(server: Instance, olga: dict[str, str]) -> str:
    """An evaluation that waits for its score."""
    return ran(server, "ada", 1)


def ran(server: Instance, name: str, seed: int) -> str:
    """Return the evaluation of a new submission, whose runs are done in one shard."""
    submission = server.submit(server.participant(name)).json()["id"]
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
        session.execute(delete(Shard).where(Shard.evaluation_id == evaluation.id))
        evaluation.n_runs, evaluation.state = N, "scoring"
        session.get_one(Submission, submission).stage = Stage.SCORING
        add_done_shard(session, server.storage, evaluation, outputs(seed))
        return evaluation.id


def context(server: Instance) -> Any:
    return SimpleNamespace(database=server.database, storage=server.storage, settings=Settings())


def score(server: Instance) -> int:
    """Score what waits. Return how many that was."""
    with server.database.read() as session:
        waiting = session.scalars(select(Evaluation.id).where(Evaluation.state == "scoring")).all()
    return sum(score_evaluation(context(server), each) for each in waiting)


def run_again(server: Instance) -> None:
    with server.database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
        assert shard is not None
        stored = {"result_sha256": server.storage.write(shard.result_key, outputs(1).to_bytes())}
        assert leases.close(session, shard, result_key=shard.result_key, **stored, wall_time_s=1, verified_share=0)


def file_of_result(server: Instance) -> Path:
    with server.database.read() as session:
        return Path(server.storage.local_folder(str(session.scalars(select(Shard.result_key)).one())))


def file_of_split(server: Instance, name: str = OUTPUT_PATHS["retrained"]) -> Path:
    return Path(server.storage.local_folder(f"{SPLIT}/{name}"))


def stages(server: Instance) -> tuple[str, str]:
    with server.database.read() as session:
        return session.scalars(select(Evaluation.state)).one(), session.scalars(select(Submission.stage)).one()


@pytest.mark.parametrize("damage", [flip_a_byte, Path.unlink])
@pytest.mark.usefixtures("evaluation")
def test_runs_of_a_damaged_result_are_made_again(server, damage):
    damage(file_of_result(server))
    with pytest.raises(ResultsMadeAgain):
        score(server)
    assert stages(server) == ("running", Stage.RUNNING)
    run_again(server)
    assert stages(server) == ("scoring", Stage.SCORING)
    assert score(server) == 1
    assert stages(server) == ("scored", Stage.SCORED)
    with server.database.read() as session:
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "submission.results_damaged")).one()
        assert event.data["runs"] == N


@pytest.mark.parametrize("can_be_made_again", [True, False])
def test_result_that_is_damaged_after_the_score_leaves_the_score(server, evaluation, can_be_made_again):
    score(server)
    flip_a_byte(file_of_result(server))
    with server.database.read() as session:
        shards = session.scalars(select(Shard).where(Shard.evaluation_id == evaluation)).all()
    with pytest.raises(ResultsMadeAgain, match="of 1 shards"):  # as the task of the metrics reads it
        read_results(context(server), evaluation, shards)
    if can_be_made_again:
        run_again(server)
        assert file_of_result(server).is_file()
    else:
        failure = ShardFailure(fault=Fault.PARTICIPANT, error_class=ErrorClass.EXCEPTION, message="it broke", run=0)
        with server.database.write() as session:
            shard = leases.claim(session, worker="w", lease_s=60)
            assert shard is not None
            assert leases.fail(session, shard, failure, runs_done=0)
    assert stages(server) == ("scored", Stage.SCORED)
    with server.database.read() as session:
        assert session.scalar(select(func.count()).select_from(PublicScore)) == 1


@pytest.mark.parametrize("name", [OUTPUT_PATHS["retrained"], OUTPUT_PATHS["oracle"], "manifest.json"])
def test_damaged_file_of_a_split_is_made_again(server, evaluation, name):
    flip_a_byte(file_of_split(server, name))
    with server.database.write() as session:
        session.execute(update(Split).values(retraining_time_s=1.0))
    for _ in range(2):  # it is asked for once
        with pytest.raises(DamagedSplit):
            score(server)
    with server.database.read() as session:
        assert session.scalars(select(PublicScore)).all() == []
        assert session.get_one(Evaluation, evaluation).scoring_until is None, "asked for again soon"
        split = session.scalars(select(Split).where(Split.visibility == "public")).one()
        assert (split.state, split.stage) == (SplitState.PENDING, CHECKING)
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "split.damaged")).one()
        assert event.data["split"] == "public"
        assert split_leases.forgotten(session, clock(session)) == [split.id]


@pytest.mark.usefixtures("evaluation")
def test_split_that_is_damaged_again_and_again_is_not_checked_for_ever(server):
    flip_a_byte(file_of_split(server))
    for _ in range(5):
        with pytest.raises(DamagedSplit):
            score(server)
        with server.database.write() as session:
            session.execute(update(Split).values(state=SplitState.READY.value))
    with server.database.read() as session:
        asked = session.scalars(select(AuditEvent).where(AuditEvent.action == "split.damaged")).all()
        assert len(asked) == stalled_preparations.CHECKS_PER_HOUR


def test_shard_that_meets_a_damaged_split_has_it_checked(server, evaluation):
    with pytest.raises(DamagedSplit, match="gone"), repair_if_damaged(context(server), evaluation):
        raise DamagedSplit("gone")
    with server.database.read() as session:
        split_id = session.get_one(Evaluation, evaluation).split_id
        assert session.get_one(Split, split_id).state == SplitState.PENDING


@pytest.mark.usefixtures("evaluation")
def test_analysis_of_damaged_outputs_is_shown_without_them(server, olga):
    score(server)
    with server.database.read() as session:
        page = f"{BASE}/submissions/{session.scalars(select(Submission.id)).one()}/analysis"
    for file in (file_of_split(server), file_of_result(server)):
        model_outputs._read.cache_clear()
        flip_a_byte(file)
        assert server.client.get(page, headers=olga).status_code == 200


def rejudge(server: Instance, olga: dict[str, str], **values: object) -> Any:
    body = {"changed": "scorer", "reason": "tighter attacks", **values}
    return server.client.post(f"{BASE}/rejudgings", headers=olga, json=body).json()


def scores(server: Instance) -> list[tuple[float, str]]:
    """Return the current scores with their attacks, the first submission's first."""
    with server.database.read() as session:
        current = select(PublicScore).join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
        rows = session.scalars(current.where(Evaluation.is_current.is_(True)).order_by(Evaluation.created_at))
        return [(row.final_score, row.details["attacks"]) for row in rows]


def state_of_copy(server: Instance, rejudging_id: str) -> str:
    with server.database.read() as session:
        return session.scalars(select(Evaluation.state).where(Evaluation.rejudging_id == rejudging_id)).one()


def attacks_of_the_oracle(server: Instance) -> str:
    with server.database.read() as session:
        return str(session.scalars(select(Split.oracle).where(Split.visibility == "public")).one()["attacks"])


def test_stored_outputs_are_scored_in_another_way(server: Instance, olga: dict[str, str]) -> None:
    with server.database.write() as session:  # as version 0.2 stored it
        row = session.scalars(select(Competition)).one()
        row.config = {"metric" if name == "scoring" else name: part for name, part in row.config.items()}
    ran(server, "ada", 1)
    score(server)
    before = scores(server)
    made = rejudge(server, olga, scoring={"attacks": "exact", "delta": 0.25})
    assert (made["scoring"]["attacks"], made["scoring"]["delta"]) == ("exact", 0.25)
    assert state_of_copy(server, made["id"]) == "scoring", "nothing is queued to be run"
    assert score(server) == 1
    ran(server, "eve", 2)
    score(server)
    assert scores(server)[:1] == before
    status = server.client.get(f"{BASE}/rejudgings/{made['id']}", headers=olga).json()
    assert (status["complete"], status["runs_done"]) == (True, status["runs"])
    assert server.client.post(f"{BASE}/rejudgings/{made['id']}/apply", headers=olga).json()["state"] == "applied"
    assert "exact" in [attacks for _, attacks in scores(server)]
    assert score(server) == 1, "what came meanwhile is scored by the new scoring, too"
    assert [attacks for _, attacks in scores(server)] == ["exact"] * 2
    with server.database.read() as session:
        competition = session.scalars(select(Competition)).one()
        assert stored_file(competition).scoring.delta == 0.25
        assert "metric" not in competition.config
    assert attacks_of_the_oracle(server) == "exact"


def test_stored_competition_keeps_its_attacks_until_others_are_applied(server: Instance, olga: dict[str, str]) -> None:
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        config = dict(competition.config)
        competition.config = config | {"scoring": config["scoring"] | {"attacks": "reference"}, "n_models": N}

    def scales() -> set[str]:
        return {server.client.get(path).json()["scale"] for path in (BASE, f"{BASE}/leaderboard")}

    ran(server, "ada", 1)
    score(server)
    [before] = scores(server)
    assert before[1] == "reference"
    published = {"Scored as in 2023 by the reference attacks, which an entry can win without unlearning"}
    assert scales() == published
    made = rejudge(server, olga, scoring={"attacks": "crossfit"})["id"]
    score(server)
    preview = server.client.post(f"{BASE}/rejudgings/{made}/preview", headers=olga).json()
    (change,) = preview["teams"]
    assert (change["old_score"], preview["complete"]) == (pytest.approx(before[0], abs=1e-5), True)
    assert change["new_score"] != change["old_score"]
    assert (scores(server), scales()) == ([before], published)
    server.client.post(f"{BASE}/rejudgings/{made}/apply", headers=olga)
    assert scores(server)[0][1] == attacks_of_the_oracle(server) == "crossfit"
    assert scales() == {"Exact retraining scores about 1"}


@pytest.mark.usefixtures("evaluation")
def test_another_scoring_is_for_all_submissions(server, olga):
    score(server)
    with server.database.read() as session:
        submission = session.scalars(select(Submission.id)).one()
    for wrong, field in (
        ({"scoring": {"delta": 0.25}, "submissions": [submission]}, "scoring"),
        ({"scoring": {"delta": 0.25}, "changed": "host"}, "scoring"),
        ({"scoring": {"attacks": "gentle"}}, "attacks"),
    ):
        assert rejudge(server, olga, **wrong)["errors"][0]["field"] == field


@pytest.mark.usefixtures("evaluation")
def test_lost_outputs_are_run_again(server, olga):
    score(server)
    with server.database.write() as session:
        session.execute(update(Shard).values(result_key=None))
    assert state_of_copy(server, rejudge(server, olga)["id"]) == "queued"


@pytest.mark.usefixtures("evaluation")
def test_damaged_split_leaves_the_old_scores(server, olga):
    score(server)
    before = scores(server)
    rejudge(server, olga, scoring={"delta": 0.25})
    file_of_split(server).unlink()
    with pytest.raises(Exception, match="outputs"):
        score(server)
    assert scores(server) == before
