"""Charts of boards: times that can be distinguished, and no layer of nothing."""

import pytest

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.models.account import Account
from server.models.competition import Competition
from server.models.evaluation import PublicScore
from server.teams import teams
from server.web.charts.vega_charts import failures, score_over_time, slope
from tests.support.instance import Instance
from tests.support.scores import add_team, scored
from tests.support.web import Visitor


@pytest.mark.parametrize(
    ("last", "labels"), [("2026-11-23T04:00:00Z", "%d %b %H:%M"), ("2026-12-01T00:00:00Z", "%d %b")]
)
def test_axis_of_hours_tells_them_apart(last: str, labels: str) -> None:
    rows = [{"at": at, "team": "ada", "score": 0.1} for at in ("2026-11-23T02:00:00Z", last)]
    chart = score_over_time(rows, teams=["ada"], own=None, oracle=None)
    assert chart["layer"][0]["encoding"]["x"]["axis"]["format"] == labels


def test_slope_of_others_has_no_layer_for_an_own_team() -> None:
    rows = [{"team": "ada", "board": board, "rank": 1, "own": "no"} for board in ("public", "private")]
    assert len(slope(rows)["layer"]) == 4
    assert len(slope([*rows, *({**row, "team": "mine", "own": "yes"} for row in rows)])["layer"]) == 6


def test_failures_of_a_quiet_week_have_an_axis() -> None:
    rows = [{"day": "23 Nov", "fault": fault, "count": 0} for fault in ("host's", "participant's")]
    assert failures(rows)["encoding"]["y"]["scale"]["domain"] == [0, 1]
    assert failures([{**row, "count": 2} for row in rows])["encoding"]["y"]["scale"]["domain"] == [0, 4]


def test_an_oracle_far_above_is_named_and_does_not_squeeze_the_scores() -> None:
    rows = [{"at": "2026-11-23T02:00:00Z", "team": "ada", "score": 0.01}]
    near = score_over_time(rows, teams=["ada"], own=None, oracle=0.02)["layer"]
    far = score_over_time(rows, teams=["ada"], own=None, oracle=0.2)["layer"]
    assert [layer["mark"]["type"] for layer in near] == ["line", "point", "rule", "text"]
    assert [layer["mark"]["type"] for layer in far] == ["line", "point", "text"]
    assert far[-1]["mark"]["text"] == "↑ oracle 0.20000, 20 times the best"


def test_charts_show_the_cost_of_the_readers_own_submissions_alone(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    server.account("ada")
    with server.database.write() as session:
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        account = session.query(Account).filter_by(name="ada").one()
        own = teams.ensure(session, session.get_one(Competition, competition.id), account)
        for team, score in ((own, 0.1), (add_team(session, competition, "mary"), 0.4)):
            made = scored(session, team, split, score)
            session.query(PublicScore).filter_by(submission_id=made.id).one().details = {"run_wall_time_s": 2.0}
    page = "/competitions/digits/leaderboard"
    assert "against their cost" not in visitor.get(f"{page}/charts").text
    visitor.log_in("ada")
    assert "against their cost" in visitor.get(f"{page}/charts").text
    values = visitor.get(f"{page}/figures/cost.json").json()["data"]["values"]
    assert [(row["score"], row["seconds"]) for row in values] == [(0.1, 2.0)]


def test_scores_over_decades_have_a_logarithmic_axis_with_their_baseline() -> None:
    rows = [{"at": "2026-11-01T00:00:00", "team": "ada", "score": score} for score in (0.0, 0.0004, 0.41)]
    layers = score_over_time(rows, teams=["ada"], own=None, oracle=0.98, baseline=("msg", 0.3))["layer"]
    axis = layers[0]["encoding"]["y"]
    assert axis["scale"] == {"type": "symlog", "constant": 0.0004, "domain": [0, pytest.approx(1.029)]}
    assert axis["axis"]["values"] == pytest.approx([0, 0.0001, 0.001, 0.01, 0.1, 1])
    words = [layer["mark"]["text"] for layer in layers if "text" in layer["mark"]]
    assert words == ["msg, the best reference line", "the oracle"]
    near = score_over_time(rows[2:], teams=["ada"], own=None, oracle=0.98)["layer"]
    assert "scale" not in near[0]["encoding"]["y"]
