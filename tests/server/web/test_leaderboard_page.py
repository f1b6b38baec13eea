"""The leaderboard as people see it, and charts: times, names beside points, epsilon as the metric has it."""

import json
import math
import re
from itertools import combinations, product
from statistics import NormalDist

import numpy as np
import pytest

from lethe.competition.visibility import Visibility
from lethe.metrics.scoring.attacks import crossfit
from lethe.metrics.scoring.epsilon import bucket_points, per_example_epsilon
from server.competitions import competitions
from server.db import now
from server.models.account import Account
from server.models.competition import Competition
from server.models.evaluation import PublicScore
from server.teams import teams
from server.web import leaderboard_pages, leaderboard_view
from server.web.charts import epsilon_charts
from server.web.charts.epsilon_charts import MAX_DRAWN, as_json, epsilons, points, separation, separations
from server.web.charts.label_placement import HEIGHT_PX, LINE_PX, PADDING_PX, place_labels
from server.web.charts.vega_charts import scatter, score_over_time
from server.web.leaderboard_view import LINES
from tests.support.instance import Instance
from tests.support.scores import add_team, scored
from tests.support.web import Visitor, plain_text

BOARD = "/competitions/digits/leaderboard"
SEALED = 0.17263548


def fill(server: Instance, competition: Competition, teams: int, *, prefix: str = "team") -> None:
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        private = competitions.get_split(session, competition, Visibility.PRIVATE)
        public.oracle, private.oracle = {"final_score": 0.2}, {"final_score": SEALED}
        for place in range(teams):
            team = add_team(session, competition, f"{prefix}-{place:03}")
            scored(session, team, public, 0.15 - 0.0001 * place)
            scored(session, team, private, SEALED - 0.001 * (place + 1))


def test_pages_say_how_scores_are_to_be_read(server: Instance, visitor: Visitor) -> None:
    told = {"reference": "Scored as in 2023 by the reference attacks, which", "crossfit": "about 1."}
    for attacks, words in told.items():
        extra = f'[scoring]\nattacks = "{attacks}"\n[pages]\nevaluation = "Ours."'
        fill(server, server.competition(attacks, extra=extra), 1, prefix=attacks)
        for page in ("", "/leaderboard", "/pages/evaluation"):
            shown = visitor.get(f"/competitions/{attacks}{page}").text
            assert words in plain_text(shown), (attacks, page)
            assert ('href="/help/what-wins-without-unlearning"' in shown) == (attacks == "reference")


def test_sealed_board_says_when_it_is_revealed(server: Instance, visitor: Visitor, olga: Account) -> None:
    fill(server, server.competition(organiser=olga, state="provisional"), 2)
    for path in (f"{BOARD}?board=private", f"{BOARD}/figures/shake-up.json"):
        answer = visitor.get(path)
        page = plain_text(answer.text)
        assert answer.status_code == 404
        assert "Not revealed yet The private scores of digits are sealed:" in page
        assert "its organisers reveal them after the close" in page
        assert 'href="/competitions/digits/leaderboard"' in answer.text, "there is a way on"
    visitor.log_in("olga")
    assert "Only organisers see this leaderboard" in visitor.get(f"{BOARD}?board=private").text
    with server.database.write() as session:
        session.query(Competition).one().state = "final"
    visitor.client.cookies.clear()
    page = plain_text(visitor.get(f"{BOARD}?board=private").text)
    assert "0.17264" in page
    assert "Only organisers see this leaderboard" not in page


def test_lines_are_read_searched_and_the_own_one_is_marked(server: Instance, visitor: Visitor) -> None:
    competition, ada = server.competition(), server.account("ada")
    fill(server, competition, 12)
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        own = teams.ensure(session, competition, ada)
        scored(session, own, public, 0.01)
        scored(session, add_team(session, competition, "<img src=x>"), public, 0.001)
    page = visitor.get(BOARD).text
    rows = [plain_text(row) for row in re.findall(r'<tr role="row" class=.*?</tr>', page, re.S)]
    assert rows[0].startswith("· not ranked Oracle 0.20000 100 %")
    assert rows[1].startswith("1 team-000")
    assert "0.15000 75 %" in rows[1]
    assert "<img src=x>" not in page
    assert "data-own" not in page
    found = plain_text(visitor.get(BOARD, params={"q": "TEAM-011"}).text)
    assert ("12 team-011" in found, " team-001 " in found) == (True, False)
    nothing = visitor.get(BOARD, params={"q": "<b>x"}).text
    assert ("No team is called" in nothing, "<b>x" in nothing) == (True, False)
    visitor.log_in("ada")
    page = visitor.get(BOARD).text
    assert f'id="team-{own.id}" data-own aria-current="true"' in page
    assert "rank 13 of 14" in plain_text(page)
    assert f'href="#team-{own.id}" id="to-own"' in page


def test_a_long_board_comes_in_pages_that_follow_each_other(server: Instance, visitor: Visitor) -> None:
    fill(server, server.competition(), LINES + 20)
    first, second = visitor.get(BOARD).text, visitor.get(BOARD, params={"page": 2}).text
    lines = visitor.get(BOARD, params={"page": 2, "part": "rows"}).text
    assert f"Lines 1 to {LINES} of {LINES + 21}" in plain_text(first)
    assert ">team-119<" not in first
    assert ">team-119<" in second
    assert ">team-119<" in lines
    assert "<html" not in lines


def test_shake_up_shows_moves_and_the_own_team(server, visitor, monkeypatch):
    competition, ada = server.competition(state="final"), server.account("ada")
    visitor.log_in("ada")
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        private = competitions.get_split(session, competition, Visibility.PRIVATE)
        for name, before, after in (("rose", 0.1, 0.12), ("fell", 0.15, 0.05), ("mine", 0.01, 0.01)):
            team = teams.ensure(session, competition, ada) if name == "mine" else add_team(session, competition, name)
            scored(session, team, public, before)
            scored(session, team, private, after)
    page = visitor.get(BOARD, params={"board": "private"}).text
    assert 'aria-label="up"' in page
    assert 'aria-label="down"' in page
    rows = visitor.get(f"{BOARD}/figures/shake-up.json").json()["data"]["values"]
    assert {(row["team"], row["board"], row["rank"], row["own"]) for row in rows} == {
        *(("rose", "public", 2, "no"), ("rose", "private", 1, "no")),
        *(("fell", "public", 1, "no"), ("fell", "private", 2, "no")),
        *(("ada", "public", 3, "yes"), ("ada", "private", 3, "yes")),
    }
    monkeypatch.setattr(leaderboard_pages, "SLOPED_TEAMS", 1)
    rows = visitor.get(f"{BOARD}/figures/shake-up.json").json()["data"]["values"]
    shown = {row["label"]: (row["place"], row["moved"]) for row in rows if row["board"] == "private"}
    assert shown == {"1  rose": (1, "rose"), "3  ada": (2, "stayed")}, "no gap, and the rank is written"
    visitor.client.cookies.clear()
    assert len(visitor.get(f"{BOARD}/figures/shake-up.json").json()["layer"]) == 4, "none of an own team"


def test_scores_over_time_only_rise(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        team = add_team(session, competition, "ada")
        for hours_ago, score in ((3, 0.05), (2, 0.03), (1, 0.08)):
            scored(session, team, public, score, hours_ago=hours_ago)
    spec = visitor.get(f"{BOARD}/figures/scores.json").json()
    assert [row["score"] for row in spec["data"]["values"]] == [0.05, 0.08, 0.08]


def test_a_teams_page_tells_what_the_board_does(server, visitor, digits, monkeypatch):
    fill(server, digits, 3)
    address = re.search(r'href="(teams/[0-9a-f]+)">team-001<', visitor.get(BOARD).text)
    assert address
    shown = plain_text(visitor.get(f"/competitions/digits/{address[1]}").text)
    assert "Public rank 2 of 3 teams" in shown
    assert "0.14990" in shown
    assert "Private" not in shown
    assert f"{SEALED - 0.002:.5f}" not in shown
    with server.database.write() as session:
        unscored, banned = add_team(session, digits, "unscored"), add_team(session, digits, "banned")
        scored(session, banned, competitions.get_split(session, digits, Visibility.PUBLIC), 0.1)
        banned.disqualified_at = now()
    assert visitor.get(f"/competitions/digits/teams/{unscored.id}").status_code == 404
    assert "disqualified" in plain_text(visitor.get(f"/competitions/digits/teams/{banned.id}").text)
    visitor.client.cookies.clear()
    assert visitor.get(f"/competitions/digits/teams/{banned.id}").status_code == 404, "organisers alone see it"
    monkeypatch.setattr(leaderboard_view, "MAX_MARKS", 2)
    page = visitor.get(BOARD).text
    assert 'class="strip-bars"' in page
    assert "how many teams" in plain_text(page)


@pytest.mark.parametrize(
    ("end", "labels"),
    [(0.194, ["0", "0.05", "0.1", "0.15"]), (1.0, ["0", "0.5", "1"]), (0.003, ["0", "0.001", "0.002", "0.003"])],
)
def test_the_axis_of_intervals_is_labelled_with_round_numbers(end: float, labels: list[str]) -> None:
    ticks = leaderboard_view.axis_ticks(end)
    assert [label for _, label in ticks] == labels
    assert all(0 <= place <= 100 for place, _ in ticks)


def test_intervals_stand_on_one_axis_with_exact_retraining(server: Instance, visitor: Visitor) -> None:
    competition = server.competition(extra="[scoring]\nshow_intervals = true\n")
    with server.database.write() as session:
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        split.oracle = {"final_score": 0.4}
        scored(session, add_team(session, competition, "ada"), split, 0.2, interval=(0.1, 0.3))
    page = visitor.get(BOARD).text
    assert page.count('class="interval-oracle" x="97.6"') == 2
    assert 'class="interval-range" x="24.5" width="49.0"' in page
    assert "<text" in page[page.index('class="interval-axis"') :]
    assert "board-tied-odd" in page


def test_organisers_read_on_the_board_where_retraining_is_first(
    server: Instance, visitor: Visitor, olga: Account
) -> None:
    competition = server.competition(organiser=olga)
    fill(server, competition, 1)
    with server.database.write() as session:
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        split.retraining_time_s, split.retraining_cpu_s, split.start_cpu_s = 1.0, 0.5, 0.02
    said = "Retraining from scratch fits into a run's limit"
    assert said not in plain_text(visitor.get(BOARD).text)
    visitor.log_in("olga")
    assert said in plain_text(visitor.get(BOARD).text)


@pytest.mark.parametrize(
    ("last", "labels"), [("2026-11-23T04:00:00Z", "%d %b %H:%M"), ("2026-12-01T00:00:00Z", "%d %b")]
)
def test_axis_of_hours_tells_them_apart(last: str, labels: str) -> None:
    rows = [{"at": at, "team": "ada", "score": 0.1} for at in ("2026-11-23T02:00:00Z", last)]
    chart = score_over_time(rows, teams=["ada"], own=None, oracle=None)
    assert chart["layer"][0]["encoding"]["x"]["axis"]["format"] == labels


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
    points = [point(f"method {number}", 0.0, 1.0) for number in range(40)]
    assert place_labels(points)[1] > HEIGHT_PX, "a chart of many points is higher"
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
