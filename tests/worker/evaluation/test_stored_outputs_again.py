"""Re-judging by another scoring: the stored outputs are scored again, no code is run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

from lethe.evaluation.model_outputs import OUTPUT_PATHS
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.models.account import Role
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, PublicScore, Shard, ShardState
from server.models.submission import Submission
from server.storage import split_key
from tests.server.conftest import server
from tests.server.evaluations.conftest import N
from tests.support.instance import Instance
from tests.support.stored_outputs import outputs, stored_split
from worker.evaluation.scoring_job import score_evaluation

__all__ = ["server"]

BASE = "/api/v1/competitions/digits"


@pytest.fixture
def olga(server: Instance) -> dict[str, str]:
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    manifest_sha256 = stored_split(server.storage, split_key("digits", "public"))
    with server.database.write() as session:
        session.scalars(select(Split).where(Split.visibility == "public")).one().manifest_sha256 = manifest_sha256
    return server.headers(organiser)


def scored(server: Instance, name: str, seed: int) -> str:
    """Return a submission whose runs are done, scored from stored outputs as a worker does it."""
    submission = str(server.submit(server.participant(name)).json()["id"])
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission)).one()
        for shard in session.scalars(select(Shard).where(Shard.evaluation_id == evaluation.id)):
            session.delete(shard)
        evaluation.n_runs = N
        key = f"evaluations/{evaluation.id}/0"
        sha256 = server.storage.write(key, outputs(seed).to_bytes())
        row = session.get_one(Submission, submission)
        session.add(
            Shard(
                evaluation_id=evaluation.id,
                split_id=evaluation.split_id,
                team_id=row.team_id,
                competition_id=row.competition_id,
                kind="runs",
                first_run=0,
                n_runs=evaluation.n_runs,
                runs_done=evaluation.n_runs,
                state=ShardState.DONE.value,
                attempt=1,
                result_key=key,
                result_sha256=sha256,
            )
        )
        evaluation.state = "scoring"
    score_what_waits(server)
    return submission


def score_what_waits(server: Instance) -> int:
    context = SimpleNamespace(database=server.database, storage=server.storage, settings=Settings())
    with server.database.read() as session:
        waiting = session.scalars(select(Evaluation.id).where(Evaluation.state == "scoring")).all()
    return sum(score_evaluation(context, each) for each in waiting)  # type: ignore[arg-type]  # what scoring needs


def rejudge(server: Instance, olga: dict[str, str], **values: object) -> Any:
    body = {"changed": "scorer", "reason": "tighter attacks", **values}
    return server.client.post(f"{BASE}/rejudgings", headers=olga, json=body)


def scores(server: Instance, submission: str) -> tuple[float, str]:
    with server.database.read() as session:
        row = session.scalars(
            select(PublicScore)
            .join(Evaluation, Evaluation.id == PublicScore.evaluation_id)
            .where(Evaluation.submission_id == submission, Evaluation.is_current.is_(True))
        ).one()
        return row.final_score, row.details["attacks"]


def test_stored_outputs_are_scored_in_another_way(server: Instance, olga: dict[str, str]) -> None:
    with server.database.write() as session:  # as version 0.2 stored it
        competition = session.scalars(select(Competition)).one()
        competition.config = {
            "metric" if name == "scoring" else name: part for name, part in competition.config.items()
        }
    ada = scored(server, "ada", 1)
    before = scores(server, ada)
    made = rejudge(server, olga, scoring={"attacks": "exact", "delta": 0.25}).json()
    assert (made["scoring"]["attacks"], made["scoring"]["delta"]) == ("exact", 0.25)
    with server.database.read() as session:
        copy = session.scalars(select(Evaluation).where(Evaluation.rejudging_id == made["id"])).one()
        assert copy.state == "scoring", "nothing is queued to be run"
    assert score_what_waits(server) == 1
    late = scored(server, "eve", 2)
    assert scores(server, ada) == before
    status = server.client.get(f"{BASE}/rejudgings/{made['id']}", headers=olga).json()
    assert (status["complete"], status["runs_done"]) == (True, status["runs"])
    assert server.client.post(f"{BASE}/rejudgings/{made['id']}/apply", headers=olga).json()["state"] == "applied"
    assert scores(server, ada)[1] == "exact"
    assert score_what_waits(server) == 1, "what came meanwhile is scored by the new scoring, too"
    assert scores(server, late)[1] == "exact"
    with server.database.read() as session:
        competition = session.scalars(select(Competition)).one()
        assert stored_file(competition).scoring.delta == 0.25
        assert "metric" not in competition.config
        oracle = session.scalars(select(Split.oracle).where(Split.visibility == "public")).one()
    assert oracle["attacks"] == "exact"


def test_stored_competition_keeps_its_attacks_until_others_are_applied(server: Instance, olga: dict[str, str]) -> None:
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        config = dict(competition.config)
        competition.config = config | {"scoring": config["scoring"] | {"attacks": "reference"}, "n_models": N}

    def scale() -> tuple[str, str]:
        read = [server.client.get(path).json()["scale"] for path in (BASE, f"{BASE}/leaderboard")]
        return read[0], read[1]

    ada = scored(server, "ada", 1)
    before = scores(server, ada)
    assert before[1] == "reference"
    published = "Scored as in 2023 by the reference attacks, which an entry can win without unlearning"
    assert scale() == (published, published)
    made = rejudge(server, olga, scoring={"attacks": "crossfit"}).json()["id"]
    score_what_waits(server)
    preview = server.client.post(f"{BASE}/rejudgings/{made}/preview", headers=olga).json()
    (change,) = preview["teams"]
    assert (change["old_score"], preview["complete"]) == (pytest.approx(before[0], abs=1e-5), True)
    assert change["new_score"] != change["old_score"]
    assert (scores(server, ada), scale()) == (before, (published, published))
    server.client.post(f"{BASE}/rejudgings/{made}/apply", headers=olga)
    assert scores(server, ada)[1] == "crossfit"
    assert scale()[0] == scale()[1] == "Exact retraining scores about 1"
    with server.database.read() as session:
        oracle = session.scalars(select(Split.oracle).where(Split.visibility == "public")).one()
    assert oracle["attacks"] == "crossfit"


def test_another_scoring_is_for_all_submissions(server: Instance, olga: dict[str, str]) -> None:
    ada = scored(server, "ada", 1)
    for wrong in ({"submissions": [ada]}, {"changed": "host"}):
        refused = rejudge(server, olga, scoring={"delta": 0.25}, **wrong)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "scoring")
    assert rejudge(server, olga, scoring={"attacks": "gentle"}).json()["errors"][0]["field"] == "attacks"


def test_lost_outputs_are_run_again(server: Instance, olga: dict[str, str]) -> None:
    scored(server, "ada", 1)
    with server.database.write() as session:
        for shard in session.scalars(select(Shard)):
            shard.result_key = None
    made = rejudge(server, olga).json()
    with server.database.read() as session:
        copy = session.scalars(select(Evaluation).where(Evaluation.rejudging_id == made["id"])).one()
        assert copy.state == "queued"


def test_damaged_split_leaves_the_old_scores(server: Instance, olga: dict[str, str]) -> None:
    ada = scored(server, "ada", 1)
    before = scores(server, ada)
    rejudge(server, olga, scoring={"delta": 0.25})
    folder = Path(server.storage.local_folder(split_key("digits", "public")))
    (folder / OUTPUT_PATHS["retrained"]).unlink()
    with pytest.raises(Exception, match="outputs"):
        score_what_waits(server)
    assert scores(server, ada) == before
