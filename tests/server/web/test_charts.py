"""Charts: boards over time, names beside points, epsilon as the metric has it."""

import json
import math
from itertools import combinations, product
from statistics import NormalDist

import numpy as np
import pytest

from lethe.competition.visibility import Visibility
from lethe.metrics.scoring.attacks import crossfit
from lethe.metrics.scoring.epsilon import bucket_points, per_example_epsilon
from server.competitions import competitions
from server.models.account import Account
from server.models.competition import Competition
from server.models.evaluation import PublicScore
from server.teams import teams
from server.web.charts import epsilon_charts
from server.web.charts.epsilon_charts import MAX_DRAWN, as_json, epsilons, points, separation, separations
from server.web.charts.label_placement import HEIGHT_PX, LINE_PX, PADDING_PX, place_labels
from server.web.charts.vega_charts import failures, scatter, score_over_time
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


def point(name: str, x: float, y: float) -> dict[str, object]:
    return {"name": name, "x": x, "y": y, "kind": "dominated"}


def lines(points: list[dict[str, object]]) -> list[float]:
    """Return where each name stands, pixels from the top, of points of one place and one more below and right."""
    placed, height = place_labels([*points, point("far", 1.0, 0.0)])
    return [(1.0 - one["label_y"]) * (height - 2 * PADDING_PX) for one in placed if one["name"] != "far"]


def test_names_are_written_towards_the_middle_where_nothing_moves_them() -> None:
    placed, _ = place_labels([point("a", 0.0, 1.0), point("b", 4.0, 0.0)])
    assert [(one["name"], one["side"], one["label_y"]) for one in placed] == [("a", "left", 1.0), ("b", "right", 0.0)]
    placed, _ = place_labels([point("left", 0.0, 0.0), point("right", 1.0, 0.0), point("above", 0.4, 1.0)])
    assert {one["label_y"] - one["y"] for one in placed} == {0.0}
    assert place_labels([]) == ([], HEIGHT_PX)


def test_names_of_one_place_stand_below_each_other() -> None:
    found = lines([point(f"team {number}", 0.0, 1.0) for number in range(12)])
    assert all(abs(a - b) >= LINE_PX - 1e-6 for a, b in combinations(found, 2))
    assert min(found) >= 0
    assert max(found) <= HEIGHT_PX - 2 * PADDING_PX


def test_chart_of_many_points_is_higher() -> None:
    points = [point(f"method {number}", 0.0, 1.0) for number in range(40)]
    assert place_labels(points)[1] > HEIGHT_PX
    assert all(abs(a - b) >= LINE_PX - 1e-6 for a, b in combinations(lines(points), 2))


def test_chart_draws_a_line_to_a_name_that_was_moved() -> None:
    made = scatter([point("a", 0.0, 0.0), point("b", 0.0, 0.0)], x="score", y="klom", kinds=["dominated"])
    rule, _, left, right = made["layer"]
    assert (rule["mark"]["type"], rule["encoding"]["y2"]["field"]) == ("rule", "label_y")
    assert [layer["mark"]["align"] for layer in (left, right)] == ["left", "right"]
    assert made["height"] == HEIGHT_PX


DELTA = 1e-5


def test_the_pictures_epsilon_is_the_metrics() -> None:
    retrained = np.array([[NormalDist().inv_cdf((index + 0.5) / 64)] for index in range(64)])
    for shift in (0.0, 1.0, 2.4, 0.3):
        exact = per_example_epsilon(retrained + shift, retrained, attacks="exact", delta=DELTA)[0]  # type: ignore[arg-type]
        found = separation(shift, 64, delta=DELTA).epsilon
        if shift == 0.3:
            assert 0.9 < found < exact, "one threshold tells no more than all attacks do"
        else:
            assert found == pytest.approx(exact, abs=0.02)


def test_picture_of_the_default_attacks_has_their_floor() -> None:
    assert epsilon_charts.FLOOR == crossfit.FLOOR
    far = separation(9.0, 512, delta=DELTA, lowest_rate=epsilon_charts.FLOOR)
    assert far.epsilon == pytest.approx(math.log((1 - DELTA - crossfit.FLOOR) / crossfit.FLOOR))
    assert far.points > 0.0
    shown = [one.epsilon for one in separations(512, DELTA, epsilon_charts.FLOOR)]
    assert shown == sorted(shown)


def test_the_pictures_points_are_the_metrics() -> None:
    for n_models, epsilon in product((4, 512), (0.0, 0.49, 0.5, 2.3, 6.9, 7.0, 50.0)):
        assert points(epsilon, n_models) == bucket_points([epsilon], n_models=n_models)[0]
    shown = separations(512, DELTA)
    assert [one.epsilon for one in shown] == sorted(one.epsilon for one in shown), "further apart is worse"
    assert shown[0].points == 1.0
    assert shown[-1].points < 0.01
    assert separations(65_536, DELTA) == separations(MAX_DRAWN, DELTA)
    steps = json.loads(as_json(separations(16, DELTA)))
    assert (len(steps), steps[0]) == (31, [0.0, 210.0, "0.00", "1.000"])


CAP = 50.0


def bars(*values: float) -> list[dict[str, object]]:
    chart = epsilons([{"value": value, "models": "own"} for value in values], cap=CAP)
    layers = chart.get("layer", [chart])
    source = layers[0].get("data") or chart["data"]
    return source["values"]  # type: ignore[no-any-return]


def test_examples_at_the_cap_have_a_bar_of_their_own() -> None:
    *others, last = bars(0.0, 0.5, 1.0, 1.9, CAP, CAP)
    assert (last["range"], last["examples"]) == ("no attack failed (the cap of 50)", 2)
    assert len(others) == 4, "the others keep the axis for themselves"
    assert max(float(str(bar["high"])) for bar in others) < float(str(last["low"])) < 3
    label = epsilons([{"value": 49.9999, "models": "own"}], cap=49.9999)["layer"][1]
    assert label["data"]["values"][0]["text"] == "50, the cap"
    assert label["encoding"]["y"] == {"value": 0}, "below the bars stand the axis's numbers"
    assert [bar["examples"] for bar in bars(1.0, 1.0)] == [2]
    assert "layer" not in epsilons([{"value": 1.0, "models": "own"}], cap=CAP)
    assert bars(CAP)[0]["examples"] == 1
