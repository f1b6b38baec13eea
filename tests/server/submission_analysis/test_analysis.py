"""One submission in depth and beside another, over HTTP and on pages: what is shown, lacking, sealed."""

import hashlib
import io
import json
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from lethe.competition.preparation_share import SplitReport
from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.leaderboard import boards
from server.leaderboard.boards import Board
from server.models.account import Role
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Evaluation, PublicScore, Shard, score_table
from server.storage import content_key
from server.submission_analysis.model_outputs import ModelSet
from tests.support.instance import Instance
from tests.support.scores import add_team, scored
from tests.support.web import Visitor, counted_queries, plain_text

BASE = "/api/v1/competitions/digits/submissions"


def submitted(server: Instance, name: str, score: float, *, seed: int) -> str:
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
    submission = submitted(server, "ada", 0.25, seed=1)
    url = f"{BASE}/{submission}/analysis"
    found = server.client.get(url, headers=of_digits).json()
    assert found["score"]["final_score"] == 0.25
    assert found["epsilon"] == [1.0, None, 3.0]
    assert found["outputs"] is None
    assert (found["team"], found["state"], found["split"]) == ("ada", "scored", "public")
    answer = server.client.get(f"{BASE}/{submission}/arrays", headers=of_digits)
    told = "The outputs of this submission's runs are not stored"
    assert (answer.status_code, answer.json()["detail"]) == (404, told)
    oskar = server.account("oskar", Role.ORGANISER)
    server.competition("elsewhere", organiser=oskar)
    of_another = url.replace("/digits/", "/elsewhere/")
    assert server.client.get(of_another, headers=server.headers(oskar)).status_code == 404
    assert server.client.get(url, params={"split": "private"}, headers=of_digits).status_code == 404
    with server.database.write() as session:
        session.scalars(select(Competition).where(Competition.slug == "digits")).one().state = "provisional"
    found = server.client.get(url, params={"split": Visibility.PRIVATE}, headers=of_digits).json()
    assert (found["split"], found["score"]) == ("private", None)


def test_comparison_names_the_better_submission(server: Instance, of_digits: dict[str, str]) -> None:
    low, high = submitted(server, "ada", 0.2, seed=1), submitted(server, "bob", 0.8, seed=2)
    found = server.client.get(f"{BASE}/{low}/comparison", params={"other": high}, headers=of_digits).json()
    assert found["winner"] == high
    assert found["difference"] == pytest.approx(-0.6)
    assert found["interval_low"] < -0.6 < found["interval_high"] < 0
    suggested = server.client.get(f"{BASE}/{low}/suggested-comparisons", headers=of_digits).json()
    assert [row["id"] for row in suggested] == [high]
    unscored = server.submit(server.participant("cyd")).json()["id"]
    answer = server.client.get(f"{BASE}/{low}/comparison", params={"other": unscored}, headers=of_digits)
    told = "One of the submissions has no score on the public split"
    assert (answer.status_code, answer.json()["detail"]) == (409, told)


def test_arrays_of_a_score_are_downloaded_and_score_it_again(server: Instance, of_digits: dict[str, str]) -> None:
    submission = submitted(server, "ada", 0.25, seed=1)
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


EPSILON = np.array([0.5, 9.25, 2.0], "<f4")
CODE = b"def unlearning(n, a, b, c): ...\n"


@dataclass(frozen=True)
class Made:
    """A scored submission and its pages."""

    id: str
    evaluation_id: str

    @property
    def path(self) -> str:
        return f"/organise/digits/submissions/{self.id}"


def make(
    server: Instance,
    competition: Competition,
    team: str,
    score: float,
    *,
    visibility: Visibility = Visibility.PUBLIC,
    epsilon: NDArray[np.float32] | None = EPSILON,
    noise: int | None = 1,
    code: bytes = CODE,
    kind: str = "py",
) -> Made:
    """Add a scored submission. noise: seeds the replicates; None for a score without any."""
    with server.database.write() as session:
        split = competitions.get_split(session, competition, visibility)
        of_name = Team.competition_id == competition.id, Team.name == team
        owner = session.scalar(select(Team).where(*of_name)) or add_team(session, competition, team)
        submission = scored(session, owner, split, score)
        submission.kind, submission.message = kind, f"of {team}"
        sha256 = hashlib.sha256(code).hexdigest()
        submission.content_sha256 = sha256
        server.storage.write(content_key(sha256), code)
        table = score_table(visibility)
        row = session.scalars(select(table).where(table.submission_id == submission.id)).one()
        row.epsilon = None if epsilon is None else epsilon.tobytes()
        row.details = {"epsilon_percentiles": {"5": 0.1, "50": 2.0, "95": 9.0}, "run_wall_time_s": 0.25}
        if noise is not None:
            values = (score + 0.01 * np.random.default_rng(noise).normal(size=40)).tolist()
            row.replicates = {"headline": values, "forgetting_quality": values, "factor": 1.0, "seed": 0, "n_models": 4}
        return Made(submission.id, row.evaluation_id)


def store_outputs(server: Instance, made: Made, *, classes: bool = True) -> None:
    rng = np.random.default_rng(1)
    outputs = {
        "confidences": rng.normal(size=(4, 3)),
        "retain_accuracy": np.full(4, 0.9),
        "test_accuracy": np.full(4, 0.8),
        "wall_time_s": np.full(4, 0.1),
    }
    if classes:
        outputs["class_accuracy"] = np.tile(np.array([[0.5, np.nan], [0.75, 1.0]], np.float32), (4, 1, 1))
    retrained = {**outputs, "class_accuracy": np.ones((4, 2, 2), np.float32)}
    server.storage.write("splits/digits/public/hidden/retrained/outputs.safetensors", save(retrained))
    sha256 = server.storage.write(f"results/{made.id}", save(outputs))
    with server.database.write() as session:
        evaluation = session.get_one(Evaluation, made.evaluation_id)
        ids = {"evaluation_id": evaluation.id, "split_id": evaluation.split_id}
        ids["team_id"], ids["competition_id"] = session.execute(select(Team.id, Team.competition_id)).first() or (
            "",
            "",
        )
        state = {"runs_done": 4, "state": "done", "result_key": f"results/{made.id}", "result_sha256": sha256}
        session.add(Shard(**ids, first_run=0, n_runs=4, **state))


def test_everything_that_is_stored_is_shown(server: Instance, visitor: Visitor, digits: Competition) -> None:
    made = make(server, digits, "ada", 0.1)
    store_outputs(server, made)
    page = visitor.get(made.path).text
    assert '<span class="nf">unlearning</span>' in page
    assert "0.10000" in page
    for name in ("epsilon", "hardest", "median", "easiest", "retain", "test", "time"):
        assert f"{made.path}/figures/{name}.json" in page
        assert visitor.get(f"{made.path}/figures/{name}.json").json()["data"]["values"]
    hardest = visitor.get(f"{made.path}/figures/hardest.json").json()
    assert {row["models"] for row in hardest["data"]["values"]} == {"unlearned", "retrained"}
    assert visitor.get(f"{made.path}/figures/secret.json").status_code == 404
    text = plain_text(page)
    assert "The hardest forget example (number 1, epsilon 9.25)" in text
    assert "0 50.0 % 100.0 % 0.500" in text
    retain, test = text.split("Retain set")[1].split("Test set")
    assert "1 100.0 % 100.0 %" not in retain, "a class that a set lacks has no line"
    assert "1 100.0 % 100.0 % 1.000" in test
    names = ["cats", "ants"]
    sizes = {"images": {"retain": 7}, "persons": {"retain": 7}, "classes": {"retain": dict.fromkeys(names, 3)}}
    facts = {"competition": "digits", "visibility": "public", "class_names": names, "confused_labels": 0, "pairs": []}
    report = SplitReport(**facts, **sizes)
    server.storage.write("splits/digits/public/report.json", report.model_dump_json().encode())
    assert "cats 50.0 % 100.0 % 0.500" in plain_text(visitor.get(made.path).text)
    gone = make(server, digits, "bob", 0.1)
    store_outputs(server, gone)
    server.storage.remove(f"results/{gone.id}")
    assert "outputs of the runs are not stored" in plain_text(visitor.get(gone.path).text)


def test_an_older_score_says_what_it_lacks(server: Instance, visitor: Visitor, digits: Competition) -> None:
    cells = [{"cell_type": "code", "source": f"x = {n}\n", "metadata": {}, "outputs": []} for n in (1, 2)]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    made = make(server, digits, "ada", 0.1, epsilon=None, code=json.dumps(book).encode(), kind="ipynb")
    store_outputs(server, made, classes=False)
    text = plain_text(visitor.get(made.path).text)
    assert "computed before epsilons of single examples were stored" in text
    assert "accuracies on each class are not stored" in text
    for words in ("separation", "cell 1", "cell 2"):
        assert words in text
    assert visitor.get(f"{made.path}/figures/epsilon.json").status_code == 404
    assert visitor.get(f"{made.path}/figures/hardness.json").status_code == 200


def test_the_better_of_two_is_named(server: Instance, visitor: Visitor, digits: Competition) -> None:
    low, high = make(server, digits, "ada", 0.1), make(server, digits, "bob", 0.3, noise=2, epsilon=EPSILON * 2)
    close, bare = (
        make(server, digits, "cyd", 0.101, noise=2),
        make(server, digits, "dan", 0.2, noise=None, epsilon=None),
    )

    def compared(one: Made, other: Made) -> str:
        return plain_text(visitor.get(f"{one.path}/compare", params={"other": other.id}).text)

    for one, other, difference, verdict in (
        (high, low, 0.2, "First is better: bob"),
        (low, high, -0.2, "Second is better: bob"),
        (low, close, -0.001, "The test finds no difference"),
    ):
        text = compared(one, other)
        assert verdict in text
        assert f"First minus second: {difference:+.5f}" in text
        assert "Both are the same file" in text
    text = compared(low, bare)
    for words in ("No paired comparison. One of the scores has no replicates", "0.20000", "computed before epsilons"):
        assert words in text
    figures = f"{low.path}/compare/{high.id}"
    values = visitor.get(f"{figures}/epsilon.json").json()["data"]["values"]
    assert {row["models"] for row in values} == {f"ada {low.id[:6]}", f"bob {high.id[:6]}"}
    spec = visitor.get(f"{figures}/examples.json").json()
    assert spec["layer"][1]["data"]["values"][1] == {"example": 1, "x": 9.25, "y": 18.5}
    assert visitor.get(f"{figures}/else.json").status_code == 404
    page = visitor.get(f"{low.path}/compare").text
    assert f'<option value="{high.id}">bob, 0.30000</option>' in page
    assert f'<option value="{low.id}">' not in page
    elsewhere = make(server, server.competition("other"), "eve", 0.2)
    assert f"This competition has no submission {elsewhere.id}" in compared(low, elsewhere)
    for path in (f"compare?other={elsewhere.id}", f"compare/{elsewhere.id}/epsilon.json"):
        assert visitor.get(f"{low.path}/{path}").status_code == 404


def test_private_figures_are_sealed_until_the_end(server: Instance, visitor: Visitor, digits: Competition) -> None:
    made = make(server, digits, "ada", 0.7, visibility=Visibility.PRIVATE)
    private = {"split": "private"}
    for path in (made.path, f"{made.path}/figures/epsilon.json", f"{made.path}/compare"):
        assert visitor.get(path, params=private).status_code == 404
    assert "0.70000" not in visitor.get(made.path).text
    with server.database.write() as session:
        competitions.of_id(session, digits.id).state = CompetitionState.PROVISIONAL.value
    assert "0.70000" in visitor.get(made.path, params=private).text
    assert visitor.get(f"{made.path}/figures/epsilon.json", params=private).status_code == 200


def test_page_runs_the_same_queries_for_any_submissions(server, visitor, digits, monkeypatch):
    def board(session: Session, competition: Competition, visibility: Visibility, **_: object) -> Board:
        return boards.whole_board(session, competition, visibility)  # a kept one would hide its queries

    monkeypatch.setattr(boards, "board_for", board)
    made = make(server, digits, "ada", 0.1)
    counts = []
    for number in range(3):
        for path in (made.path, f"{made.path}/compare?other={made.id}"):
            with counted_queries(server.database.engine) as queries:
                visitor.get(path)
            counts.append((path, len(queries)))
        make(server, digits, f"team-{number}", 0.2)
        make(server, digits, "ada", 0.15)
    assert len(set(counts)) == 2, counts
