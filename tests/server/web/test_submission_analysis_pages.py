"""One submission in depth and beside another: what is shown, what older scores lack, what stays sealed."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save
from sqlalchemy import select
from sqlalchemy.orm import Session

from lethe.competition.preparation_share import SplitReport
from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.leaderboard import boards
from server.leaderboard.boards import Board
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Evaluation, Shard, score_table
from server.storage import content_key
from tests.support.instance import Instance
from tests.support.scores import add_team, scored
from tests.support.web import Visitor, counted_queries, plain_text

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
        session.add(
            Shard(
                evaluation_id=evaluation.id,
                team_id=session.scalars(select(Team.id)).first(),
                split_id=evaluation.split_id,
                competition_id=session.scalars(select(Team.competition_id)).first(),
                first_run=0,
                n_runs=4,
                runs_done=4,
                state="done",
                result_key=f"results/{made.id}",
                result_sha256=sha256,
            )
        )


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
    assert "Test set" in text


def test_a_class_that_a_set_lacks_has_no_line(server: Instance, visitor: Visitor, digits: Competition) -> None:
    made = make(server, digits, "ada", 0.1)
    store_outputs(server, made)
    retain, test = plain_text(visitor.get(made.path).text).split("Retain set")[1].split("Test set")
    assert "1 100.0 % 100.0 %" not in retain
    assert "1 100.0 % 100.0 % 1.000" in test


def test_classes_are_called_by_their_names(server: Instance, visitor: Visitor, digits: Competition) -> None:
    made = make(server, digits, "ada", 0.1)
    store_outputs(server, made)
    names = ["cats", "ants"]
    report = SplitReport(
        competition="digits",
        visibility="public",
        images={"retain": 7},
        persons={"retain": 7},
        classes={"retain": dict.fromkeys(names, 3)},
        class_names=names,
        confused_labels=0,
        pairs=[],
    )
    server.storage.write("splits/digits/public/report.json", report.model_dump_json().encode())
    assert "cats 50.0 % 100.0 % 0.500" in plain_text(visitor.get(made.path).text)


def test_an_older_score_says_what_it_lacks(server: Instance, visitor: Visitor, digits: Competition) -> None:
    made = make(server, digits, "ada", 0.1, epsilon=None)
    store_outputs(server, made, classes=False)
    text = plain_text(visitor.get(made.path).text)
    assert "computed before epsilons of single examples were stored" in text
    assert "accuracies on each class are not stored" in text
    assert "separation" in text
    assert visitor.get(f"{made.path}/figures/epsilon.json").status_code == 404
    assert visitor.get(f"{made.path}/figures/hardness.json").status_code == 200


def test_outputs_that_are_gone_leave_the_page_whole(server: Instance, visitor: Visitor, digits: Competition) -> None:
    made = make(server, digits, "ada", 0.1)
    store_outputs(server, made)
    server.storage.remove(f"results/{made.id}")
    assert "outputs of the runs are not stored" in plain_text(visitor.get(made.path).text)


def test_a_notebook_is_shown_by_its_cells(server: Instance, visitor: Visitor, digits: Competition) -> None:
    cells = [{"cell_type": "code", "source": f"x = {n}\n", "metadata": {}, "outputs": []} for n in (1, 2)]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    made = make(server, digits, "ada", 0.1, code=json.dumps(book).encode(), kind="ipynb")
    text = plain_text(visitor.get(made.path).text)
    assert "cell 1" in text
    assert "cell 2" in text


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (0.3, 0.1, "First is better: ada"),
        (0.1, 0.3, "Second is better: bob"),
        (0.1, 0.101, "The test finds no difference"),
    ],
)
def test_the_better_of_two_is_named(server, visitor, digits, *, first, second, verdict):
    a = make(server, digits, "ada", first)
    b = make(server, digits, "bob", second, noise=2)
    text = plain_text(visitor.get(f"{a.path}/compare", params={"other": b.id}).text)
    assert verdict in text
    assert f"First minus second: {first - second:+.5f}" in text
    assert "Both are the same file" in text


def test_figures_of_two_hold_both(server: Instance, visitor: Visitor, digits: Competition) -> None:
    a, b = make(server, digits, "ada", 0.1), make(server, digits, "bob", 0.2, epsilon=EPSILON * 2)
    values = visitor.get(f"{a.path}/compare/{b.id}/epsilon.json").json()["data"]["values"]
    assert {row["models"] for row in values} == {f"ada {a.id[:6]}", f"bob {b.id[:6]}"}
    spec = visitor.get(f"{a.path}/compare/{b.id}/examples.json").json()
    assert spec["layer"][1]["data"]["values"][1] == {"example": 1, "x": 9.25, "y": 18.5}
    assert visitor.get(f"{a.path}/compare/{b.id}/else.json").status_code == 404


def test_without_replicates_there_is_no_verdict(server: Instance, visitor: Visitor, digits: Competition) -> None:
    a, b = make(server, digits, "ada", 0.1, noise=None), make(server, digits, "bob", 0.2, epsilon=None)
    text = plain_text(visitor.get(f"{a.path}/compare", params={"other": b.id}).text)
    assert "No paired comparison. One of the scores has no replicates" in text
    assert "0.20000" in text
    assert "computed before epsilons" in text


def test_another_competition_s_submission_is_not_found(server: Instance, visitor: Visitor, digits: Competition) -> None:
    a = make(server, digits, "ada", 0.1)
    b = make(server, server.competition("other"), "eve", 0.2)
    answer = visitor.get(f"{a.path}/compare", params={"other": b.id})
    assert answer.status_code == 404
    assert f"This competition has no submission {b.id}" in plain_text(answer.text)
    assert visitor.get(f"{a.path}/compare/{b.id}/epsilon.json").status_code == 404


def test_suggestions_hold_the_best_of_teams_and_not_itself(server, visitor, digits):
    a, b = make(server, digits, "ada", 0.1), make(server, digits, "bob", 0.2)
    page = visitor.get(f"{a.path}/compare").text
    assert f'<option value="{b.id}">bob, 0.20000</option>' in page
    assert f'<option value="{a.id}">' not in page


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
