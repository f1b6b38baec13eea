"""The ladder: pure rule, and what boards, submissions and receipts show of it."""

from datetime import UTC, datetime, timedelta

import pytest

from lethe.competition.visibility import Visibility
from server.leaderboard.ranking import Try, climb
from server.models.account import Role
from server.models.submission import Submission
from tests.support.instance import Instance

START = datetime(2030, 1, 1, tzinfo=UTC)
BASE = "/api/v1/competitions/digits"


def shown(scores: list[float], step: float) -> list[float]:
    tries = [Try(str(i), START + timedelta(hours=i), score) for i, score in enumerate(scores)]
    return [round(rung.score, 9) for rung in climb(tries, step=step).values()]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], []),
        ([0.123], [0.1]),
        ([0.10, 0.14, 0.19], [0.1, 0.1, 0.1]),  # small gains do not move it, however many
        ([0.10, 0.26], [0.1, 0.3]),
        ([0.30, 0.10, 0.20], [0.3, 0.3, 0.3]),
        ([0.10, 0.20], [0.1, 0.1]),  # exactly one step is not more than a step
    ],
)
def test_score_moves_only_by_more_than_a_step(scores: list[float], expected: list[float]) -> None:
    assert shown(scores, 0.1) == expected


def test_shown_score_tells_no_more_than_its_steps() -> None:
    assert set(shown([i / 1000 for i in range(1000)], 0.125)) <= {i * 0.125 for i in range(9)}


def test_ladder_hides_a_better_submission_below_the_step(both: Instance) -> None:
    extra = '[board]\nmode = "ladder"\nstep = 0.125\n[submissions]\nmodes = ["function", "notebook"]\n'
    both.competition(extra=extra)
    ada = both.participant("ada")
    first, better = (both.submit(ada).json()["id"] for _ in range(2))
    with both.database.write() as session:
        session.get_one(Submission, better).entry_point = {"mode": "notebook"}
    for submission, score in ((first, 0.2617), (better, 0.3111)):
        both.score(submission, score)
    (row,) = both.client.get(f"{BASE}/leaderboard").json()["rows"]
    assert (row["score"], row["mode"]) == (0.25, "function")


def test_exact_scores_stay_hidden_until_the_reveal(both: Instance) -> None:
    organiser = both.account("olga", Role.ORGANISER)
    both.competition(organiser=organiser, extra='board = {mode = "ladder", step = 0.125}\n')
    olga, ada = both.headers(organiser), both.participant("ada")
    sent = []
    for score in (0.2617, 0.3111, 0.2999):
        sent.append(both.submit(ada).json()["id"])
        both.score(sent[-1], score)
    seen = [both.client.get(f"/api/v1/submissions/{submission}", headers=ada).json() for submission in sent]
    assert [row["score"]["final_score"] for row in seen] == [0.25, 0.25, 0.25]
    rows = both.client.get(f"{BASE}/leaderboard").json()["rows"]
    assert [(row["team"], row["score"]) for row in rows] == [("ada", 0.25)]
    assert both.client.get(f"{BASE}/finals", headers=ada).json() == []
    assert both.client.get(f"/api/v1/submissions/{sent[0]}/receipt", headers=ada).status_code == 404
    both.client.post(f"{BASE}/close", headers=olga)
    both.tick()
    for submission in sent[1:]:
        both.score(submission, 0.2, visibility=Visibility.PRIVATE)
    both.tick()
    chosen = both.client.get(f"/api/v1/submissions/{sent[1]}", headers=olga).json()
    assert chosen["selected"] is True, "the close takes the truly best ones"
