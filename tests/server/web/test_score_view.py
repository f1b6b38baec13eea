"""A submission's score on its page, and a team's scores over time: rank, best, factors, metrics, two compared."""

import re
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest

from lethe.competition.visibility import Visibility
from server.accounts import accounts
from server.competitions import competitions
from server.db import now
from server.disclosure.gate import ShownNumber
from server.models.competition import Competition
from server.models.evaluation import PublicScore
from server.models.submission import Submission
from server.submissions import submissions
from server.submissions import views as submission_views
from server.submissions.score_explanation import ScoreReference, advice
from server.teams import teams
from server.web.score_view import WIDTH, find_breakdown
from tests.support.instance import Instance
from tests.support.scores import add_submission, add_team, compute, scored, scored_with_report
from tests.support.web import Visitor, plain_text

OPEN_METRIC = "[scoring]\nshow_breakdown = true\nshow_intervals = true\n"
PERCENTILES = {"0": 0.0, "5": 0.1, "25": 0.2, "50": 0.4, "75": 0.9, "95": 60.0, "100": 60.0}
Make = Callable[..., tuple[Competition, list[str]]]
OWN = "/competitions/digits/submissions"


@pytest.fixture
def make(server: Instance, visitor: Visitor) -> Make:
    """Make a competition in which ada, who is logged in, has the scores given."""

    def made(*values: float, extra: str = "") -> tuple[Competition, list[str]]:
        competition = server.competition(extra=extra)
        ada = server.account("ada")
        with server.database.write() as session:
            split = competitions.get_split(session, competition, Visibility.PUBLIC)
            split.oracle = {
                "final_score": 0.2,
                "forgetting_quality": 0.21,
                "retain_ratio": 0.97,
                "test_ratio": 0.98,
                "epsilon_percentiles": PERCENTILES,
            }
            team = teams.ensure(session, competition, ada)
            rival = add_team(session, competition, "mary")
            scored(session, rival, split, 0.15)
            ids = [scored(session, team, split, value, hours_ago=9.0 - n).id for n, value in enumerate(values)]
            for found in session.query(PublicScore):
                found.details = {
                    "run_wall_time_s": 0.31415,
                    "run_time": {"s": 0.1101, "limit_s": 0.2, "of": "processor"},
                    "epsilon_percentiles": PERCENTILES,
                }
                replicates = np.random.default_rng(7).normal(found.final_score, 0.01, 20)
                found.replicates = {"seed": 1, "n_models": 4, "factor": 1.0, "headline": replicates.tolist()}
        visitor.log_in("ada")
        return competition, ids

    return made


def test_a_scored_submission_tells_rank_best_time_and_no_factors(
    make: Make, server: Instance, visitor: Visitor
) -> None:
    competition, (worse, better, last) = make(0.05, 0.1, 0.02)
    page = plain_text(visitor.get(f"/submissions/{worse}").text)
    assert "Rank 2 of 2 teams, by another submission" in page
    assert "Your best 0.10000 , 0.05000 more" in page
    assert "One run (median) at most 0.12 of 0.2 s of the processor: fits" in page
    assert "What it is made of" not in page
    assert "0.2100" not in page
    assert "Your best this one" in plain_text(visitor.get(f"/submissions/{better}").text)
    with server.database.read() as session:
        ada = accounts.find(session, "ada")
    shown = server.shown(server.headers(ada), worse)["score"]
    assert shown["breakdown"] is None
    assert (shown["run_time_s"], shown["run_limit_s"], shown["run_time_of"]) == (0.12, 0.2, "processor")
    [chart] = re.findall('data-chart="([^"]*)"', visitor.get(OWN).text)
    rows = visitor.get(chart).json()["layer"][1]["data"]["values"]
    assert [(row["score"], row["best"]) for row in rows] == [(0.05, 0.05), (0.1, 0.1), (0.02, 0.1)]
    page = plain_text(visitor.get(f"{OWN}/compare?first={worse}&second={better}").text)
    assert "The second scores 0.05000 higher" in page
    assert "paired test" not in page
    with server.database.write() as session:
        theirs = add_submission(session, add_team(session, competition, "eve"), received_at=now() - timedelta(hours=1))
    assert visitor.get(f"{OWN}/compare?first={last}&second={theirs.id}").status_code == 404


def test_opened_factors_stand_beside_exact_retrainings(make: Make, server: Instance, visitor: Visitor) -> None:
    competition, (own, better) = make(0.05, 0.1, extra=OPEN_METRIC)
    html = visitor.get(f"/submissions/{own}").text
    page = plain_text(html)
    assert "Forgetting quality 0.0500 0.2100 100 %" in page
    assert "Factor Yours Oracle Share of the loss" in page
    assert "Oracle: epsilon" not in page  # said to screen readers only
    assert "Oracle: epsilon by share of examples" in html
    page = plain_text(visitor.get(f"{OWN}/compare?first={own}&second={better}").text)
    assert "The second scores 0.05000 higher" in page
    assert "The paired test finds a difference" in page
    with server.database.read() as session:
        view = submission_views.view(session, [submissions.of_competition(session, competition, own)])[0]
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        shown = find_breakdown(view, split, n_models=512, explanation=None)
    assert shown is not None
    assert shown.end == 7.0, "an epsilon that earns nothing stands beyond the axis"
    assert shown.ticks[-1][1] < shown.spreads[0].high < WIDTH


def test_score_is_explained_beside_entry_before_and_best_baseline(make, server, visitor):
    competition, (first, second) = make(0.05, 0.1, extra=OPEN_METRIC)
    with server.database.write() as session:
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        for name, score in (("finetune", 0.02), ("scrub", 0.01)):
            scored(session, add_team(session, competition, name, is_baseline=True), split, score)
        own = session.query(PublicScore).where(PublicScore.submission_id == second).one()
        own.details = own.details | {"spread_ratio": 0.41239, "share_above": 0.9}
        ada = accounts.find(session, "ada")
    headers = server.headers(ada)
    answer = server.shown(headers, second)
    assert answer["explanation"]["costs"]["forgetting_quality"] == 1.0
    differences = {name: round(each["score"], 6) for name, each in answer["explanation"]["differences"].items()}
    assert differences == {"the entry before": 0.05, "finetune": 0.08}
    assert answer["explanation"]["advice"].startswith("Your models differ less from one another")
    assert answer["score"]["breakdown"]["spread_ratio"] == 0.412
    page = plain_text(visitor.get(f"/submissions/{second}").text)
    assert "Against the entry before: score +0.0500" in page
    assert answer["explanation"]["advice"] in page
    only = server.shown(headers, first)["explanation"]
    assert list(only["differences"]) == ["finetune"]
    with server.database.write() as session:
        session.query(PublicScore).where(PublicScore.submission_id == first).one().scorer_version = "another"
    after = server.shown(headers, second)["explanation"]
    assert list(after["differences"]) == ["finetune"], "scores of another scorer are not compared"
    with server.database.write() as session:
        row = session.query(PublicScore).where(PublicScore.submission_id == first).one()
        row.scorer_version = session.query(PublicScore).where(PublicScore.submission_id == second).one().scorer_version
        session.get_one(Submission, first).disqualified_at = now()
    after = server.shown(headers, second)["explanation"]
    assert list(after["differences"]) == ["finetune"], "what is disqualified is not compared"


REFERENCES = {
    side: {
        "score": {"value": value, "table": {"retain_ratio": 1.0, "test_ratio": 1.0}},
        "f": {"value": value, "table": {"retain_ratio": 1.0, "test_ratio": 1.0}},
    }
    for side, value in (("oracle", 0.2), ("original", 0.0021))
}


@pytest.mark.parametrize("ladder", ["", '[board]\nmode = "ladder"\nstep = 0.01\n'], ids=["exact", "ladder"])
def test_score_stands_beside_its_references_where_factors_are_closed(make, server, visitor, ladder):
    competition, (own,) = make(0.05, extra=ladder)
    with server.database.write() as session:
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        split.oracle = (split.oracle or {}) | {"references": REFERENCES}
        scored(session, add_team(session, competition, "msg", is_baseline=True), split, 0.08)
        scored(session, add_team(session, competition, "scrub", is_baseline=True), split, 0.07)
        ada = accounts.find(session, "ada")
    shown = server.shown(server.headers(ada), own)
    assert shown["explanation"] is None
    beside = [(one["kind"], one["name"], one["score"]) for one in shown["context"]["references"]]
    assert beside == [("oracle", "Oracle", 0.2), ("baseline", "msg", 0.08), ("original", "Original model", 0.0021)]
    assert "msg has 0.03000 more" in shown["context"]["advice"]
    page = plain_text(visitor.get(f"/submissions/{own}").text)
    assert shown["context"]["advice"] in page
    assert "msg best reference line 0.08000" in page
    assert ("Your team, on the ladder 0.05000" if ladder else "This submission 0.05000") in page
    assert "The score is forgetting quality times two ratios" in page
    assert "lethe check" in page


def test_score_that_ranks_by_metrics_is_not_called_forgetting_quality(make: Make, visitor: Visitor) -> None:
    _, (own,) = make(0.05, extra='[report]\nmetrics = ["klom"]\n[ranking]\nby = "klom"\n')
    page = plain_text(visitor.get(f"/submissions/{own}").text)
    assert "The score is klom, on a scale from the original model (0) to the oracle (1)." in page
    assert "The score is forgetting quality" not in page


def test_advice_goes_by_the_references() -> None:
    known = [("oracle", "Oracle", 0.2), ("baseline", "msg", 0.08), ("original", "Original model", 0.002)]
    beside = [ScoreReference(kind, name, ShownNumber(value)) for kind, name, value in known]
    for score, begins in (
        (0.19, "It is close to exact retraining"),
        (0.01, "It is about what a model has that forgets nothing"),
        (0.07, "The reference line msg has 0.01000 more"),
        (0.09, "What is left lies between"),
    ):
        assert advice(score, beside).startswith(begins)
    assert advice(0.05, []).startswith("What is left lies")


def test_metrics_stand_beside_their_references(server: Instance, visitor: Visitor) -> None:
    submission = scored_with_report(server)
    compute(server, submission)
    visitor.log_in("ada")
    page = plain_text(visitor.get(f"/submissions/{submission}").text)
    for shown in ("Other metrics", "Accuracy gap", "0.123", "0.012", "0.3"):
        assert shown in page
    assert "data-chart" not in visitor.get(OWN).text, "one score is not drawn"
    visitor.log_in("of-digits")
    assert "<li>n: 1</li>" in visitor.get(f"/submissions/{submission}").text, "organisers see the table"
