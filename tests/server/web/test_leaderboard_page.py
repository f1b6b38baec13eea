"""The leaderboard as people see it."""

import re

import pytest

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.models.account import Account
from server.models.competition import Competition
from server.teams import teams
from server.web import leaderboard_pages, leaderboard_view
from server.web.leaderboard_view import LINES
from tests.support.instance import Instance
from tests.support.scores import add_team, scored
from tests.support.web import Visitor, counted_queries, plain_text

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


def test_scores_over_time_only_rise(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        team = add_team(session, competition, "ada")
        for hours_ago, score in ((3, 0.05), (2, 0.03), (1, 0.08)):
            scored(session, team, public, score, hours_ago=hours_ago)
    spec = visitor.get(f"{BOARD}/figures/scores.json").json()
    assert [row["score"] for row in spec["data"]["values"]] == [0.05, 0.08, 0.08]


def test_the_page_asks_the_same_queries_for_any_number_of_teams(server: Instance, visitor: Visitor) -> None:
    counts = []
    for teams_of in (1, 30):
        fill(server, server.competition(f"d{teams_of}"), teams_of, prefix=f"of-{teams_of}")
        with counted_queries(server.database.engine) as queries:
            visitor.get(f"/competitions/d{teams_of}/leaderboard")
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 8


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
