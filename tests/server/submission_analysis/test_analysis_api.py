"""One submission's analysis over HTTP, for its organisers."""

import io

import numpy as np
import pytest
from safetensors.numpy import save
from sqlalchemy import delete, select

from lethe.competition.visibility import Visibility
from server.models.account import Role
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Evaluation, PublicScore, Shard
from server.submission_analysis.model_outputs import ModelSet
from tests.support.instance import Instance

BASE = "/api/v1/competitions/digits/submissions"


def scored(server: Instance, name: str, score: float, *, seed: int) -> str:
    """Submit as `name`. Return the id of the submission, scored with epsilons and replicates."""
    submission = str(server.submit(server.participant(name)).json()["id"])
    server.score(submission, score)
    with server.database.write() as session:
        row = session.scalars(select(PublicScore).where(PublicScore.submission_id == submission)).one()
        row.epsilon = np.array([1.0, np.inf, 3.0], "<f4").tobytes()
        values = (score + 0.01 * np.random.default_rng(seed).normal(size=40)).tolist()
        row.replicates = {"headline": values, "factor": 1.0, "seed": 0, "n_models": 4}
    return submission


def test_analysis_shows_score_epsilons_and_missing_outputs(server: Instance, of_digits: dict[str, str]) -> None:
    submission = scored(server, "ada", 0.25, seed=1)
    found = server.client.get(f"{BASE}/{submission}/analysis", headers=of_digits).json()
    assert found["score"]["final_score"] == 0.25
    assert found["epsilon"] == [1.0, None, 3.0]
    assert found["outputs"] is None
    assert (found["team"], found["state"], found["split"]) == ("ada", "scored", "public")


def test_comparison_names_the_better_submission(server: Instance, of_digits: dict[str, str]) -> None:
    low, high = scored(server, "ada", 0.2, seed=1), scored(server, "bob", 0.8, seed=2)
    found = server.client.get(f"{BASE}/{low}/comparison", params={"other": high}, headers=of_digits).json()
    assert found["winner"] == high
    assert found["difference"] == pytest.approx(-0.6)
    assert found["interval_low"] < -0.6 < found["interval_high"] < 0
    suggested = server.client.get(f"{BASE}/{low}/suggested-comparisons", headers=of_digits).json()
    assert [row["id"] for row in suggested] == [high]


def test_unscored_submissions_cannot_be_compared(server: Instance, of_digits: dict[str, str]) -> None:
    first = scored(server, "ada", 0.2, seed=1)
    second = server.submit(server.participant("bob")).json()["id"]
    answer = server.client.get(f"{BASE}/{first}/comparison", params={"other": second}, headers=of_digits)
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "One of the submissions has no score on the public split",
    )


def test_private_split_is_hidden_until_the_close(server: Instance, of_digits: dict[str, str]) -> None:
    submission = scored(server, "ada", 0.25, seed=1)
    url = f"{BASE}/{submission}/analysis"
    assert server.client.get(url, params={"split": "private"}, headers=of_digits).status_code == 404
    with server.database.write() as session:
        session.scalars(select(Competition)).one().state = CompetitionState.PROVISIONAL.value
    found = server.client.get(url, params={"split": Visibility.PRIVATE}, headers=of_digits).json()
    assert (found["split"], found["score"]) == ("private", None)


def test_submissions_of_other_competitions_are_not_found(server: Instance, of_digits: dict[str, str]) -> None:
    oskar = server.account("oskar", Role.ORGANISER)
    server.competition("elsewhere", organiser=oskar)
    submission = scored(server, "ada", 0.25, seed=1)
    url = f"/api/v1/competitions/elsewhere/submissions/{submission}/analysis"
    assert server.client.get(url, headers=server.headers(oskar)).status_code == 404


def test_arrays_of_a_score_are_downloaded_and_score_it_again(server: Instance, of_digits: dict[str, str]) -> None:
    submission = scored(server, "ada", 0.25, seed=1)
    rng = np.random.default_rng(3)
    arrays = {
        side: {"confidences": rng.normal(size=(4, 3)), "retain_accuracy": np.full(4, 0.9), "test_accuracy": np.ones(4)}
        for side in ModelSet
    }
    for side in (ModelSet.RETRAINED, ModelSet.ORACLE, ModelSet.ORIGINAL):
        server.storage.write(f"splits/digits/public/hidden/{side}/outputs.safetensors", save(arrays[side]))
    halves = [{name: array[half] for name, array in arrays[ModelSet.UNLEARNED].items()} for half in (slice(3), [3])]
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation)).one()
        session.execute(delete(Shard))
        for first, half in zip((0, 3), halves, strict=True):
            key = f"results/{first}"
            shard = Shard(evaluation_id=evaluation.id, split_id=evaluation.split_id, first_run=first, state="done")
            shard.team_id, shard.competition_id = session.execute(select(Team.id, Team.competition_id)).one()
            shard.n_runs, shard.result_key = len(half["confidences"]), key
            shard.result_sha256 = server.storage.write(key, save({k: np.ascontiguousarray(v) for k, v in half.items()}))
            session.add(shard)
    url = f"{BASE}/{submission}/arrays"
    for side in ModelSet:
        answer = server.client.get(url, params={"models": side}, headers=of_digits)
        assert answer.headers["content-disposition"].endswith(f'{submission}-public-{side}.npz"')
        found = np.load(io.BytesIO(answer.content))
        assert {name: found[name].tolist() for name in found} == {k: v.tolist() for k, v in arrays[side].items()}
    assert server.client.get(url, params={"split": "private"}, headers=of_digits).status_code == 404
    assert server.client.get(url, headers=server.participant("eve")).status_code in (403, 404)
    with server.database.write() as session:
        session.scalars(select(Shard).where(Shard.first_run == 3)).one().result_key = None
    answer = server.client.get(url, headers=of_digits)
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "The outputs of 3 of 4 runs are stored; those of the others are made again",
    )
    assert server.client.get(url, params={"models": "retrained"}, headers=of_digits).status_code == 200


def test_arrays_that_are_not_stored_are_not_found(server: Instance, of_digits: dict[str, str]) -> None:
    submission = scored(server, "ada", 0.25, seed=1)
    answer = server.client.get(f"{BASE}/{submission}/arrays", headers=of_digits)
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "The outputs of this submission's runs are not stored",
    )
