"""The leaderboard as people see it."""

import re

import pytest

from lethe.competition.visibility import Visibility
from server.accounts import accounts
from server.competitions import competitions
from server.db import now
from server.models.account import Role
from server.models.competition import Competition, Membership
from server.web import leaderboard_pages, leaderboard_view
from server.web.leaderboard_view import LINES
from tests.support.instance import Instance
from tests.support.scores import add_team, scored
from tests.support.web import Visitor, counted_queries, plain_text

BOARD = "/competitions/digits/leaderboard"
SEALED = 0.17263548


def fill(server: Instance, competition: Competition, teams: int) -> None:
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        private = competitions.get_split(session, competition, Visibility.PRIVATE)
        public.oracle, private.oracle = {"final_score": 0.2}, {"final_score": SEALED}
        for place in range(teams):
            team = add_team(session, competition, f"team-{place:03}")
            scored(session, team, public, 0.15 - 0.0001 * place)
            scored(session, team, private, SEALED - 0.001 * (place + 1))


LINK = 'href="/help/what-wins-without-unlearning"'


@pytest.mark.parametrize("path", ["/competitions/digits", BOARD, "/competitions/digits/pages/evaluation"])
def test_pages_say_how_scores_are_to_be_read(server: Instance, visitor: Visitor, path: str) -> None:
    for attacks, words in (
        ("reference", "Scored as in 2023 by the reference attacks, which"),
        ("crossfit", "about 1."),
    ):
        extra = f'[scoring]\nattacks = "{attacks}"\n[pages]\nevaluation = "Ours."'
        slug = "digits" if attacks == "reference" else "others"
        fill(server, server.competition(slug, extra=extra), 1 if slug == "digits" else 0)
        page = visitor.get(path.replace("digits", slug)).text
        if slug == "digits" or path != BOARD:  # an empty board has nothing to read
            assert words in plain_text(page)
        assert (LINK in page) == (attacks == "reference")


@pytest.mark.parametrize("path", [f"{BOARD}?board=private", f"{BOARD}/figures/shake-up.json"])
def test_sealed_board_says_when_it_is_revealed(server: Instance, visitor: Visitor, path: str) -> None:
    fill(server, server.competition(), 2)
    answer = visitor.get(path)
    assert answer.status_code == 404
    page = plain_text(answer.text)
    assert "Not revealed yet The private scores of digits are sealed:" in page
    assert "its organisers reveal them after the close" in page
    assert "closes on" in page
    assert 'href="/competitions/digits/leaderboard"' in answer.text, "there is a way on"


def test_ranks_scores_and_shares_are_read_in_rows(server: Instance, visitor: Visitor) -> None:
    fill(server, server.competition(), 2)
    rows = [plain_text(row) for row in re.findall(r'<tr role="row" class=.*?</tr>', visitor.get(BOARD).text, re.S)]
    assert rows[0].startswith("· not ranked Oracle 0.20000 100 %")
    assert rows[1].startswith("1 team-000")
    assert "0.15000 75 %" in rows[1]


def test_the_own_team_is_marked_and_reachable(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    ada = server.account("ada")
    fill(server, competition, 3)
    with server.database.write() as session:
        from server.teams import teams  # noqa: PLC0415

        team = teams.ensure(session, competition, ada)
        scored(session, team, competitions.get_split(session, competition, Visibility.PUBLIC), 0.01)
    visitor.log_in("ada")
    page = visitor.get(BOARD).text
    assert f'id="team-{team.id}" data-own aria-current="true"' in page
    assert "rank 4 of 4" in plain_text(page)
    assert f'href="#team-{team.id}" id="to-own"' in page


def test_another_reader_does_not_see_the_mark(server: Instance, visitor: Visitor) -> None:
    fill(server, server.competition(), 2)
    assert "data-own" not in visitor.get(BOARD).text


def test_a_search_shows_the_teams_that_match(server: Instance, visitor: Visitor) -> None:
    fill(server, server.competition(), 12)
    page = plain_text(visitor.get(BOARD, params={"q": "TEAM-011"}).text)
    assert "12 team-011" in page
    assert " team-001 " not in page


def test_a_search_without_a_match_says_so_and_escapes_it(server: Instance, visitor: Visitor) -> None:
    fill(server, server.competition(), 1)
    page = visitor.get(BOARD, params={"q": "<b>x"}).text
    assert "No team is called" in page
    assert "<b>x" not in page


def test_a_team_s_name_is_escaped(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    with server.database.write() as session:
        team = add_team(session, competition, "<img src=x>")
        scored(session, team, competitions.get_split(session, competition, Visibility.PUBLIC), 0.1)
    assert "<img src=x>" not in visitor.get(BOARD).text


def test_a_long_board_comes_in_pages_that_follow_each_other(server: Instance, visitor: Visitor) -> None:
    fill(server, server.competition(), LINES + 20)
    first, second = visitor.get(BOARD).text, visitor.get(BOARD, params={"page": 2}).text
    lines = visitor.get(BOARD, params={"page": 2, "part": "rows"}).text
    assert f"Lines 1 to {LINES} of {LINES + 21}" in plain_text(first)
    assert ">team-119<" not in first
    assert ">team-119<" in second
    assert ">team-119<" in lines
    assert "<html" not in lines


def test_the_private_board_opens_with_the_reveal(server: Instance, visitor: Visitor) -> None:
    fill(server, server.competition(state="final"), 2)
    page = plain_text(visitor.get(BOARD, params={"board": "private"}).text)
    assert "0.17264" in page
    assert "Only organisers see this leaderboard" not in page


def test_the_shake_up_is_shown_with_words_for_its_arrows(server: Instance, visitor: Visitor) -> None:
    competition = server.competition(state="final")
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        private = competitions.get_split(session, competition, Visibility.PRIVATE)
        for name, before, after in (("rose", 0.1, 0.12), ("fell", 0.15, 0.05)):
            team = add_team(session, competition, name)
            scored(session, team, public, before)
            scored(session, team, private, after)
    page = visitor.get(BOARD, params={"board": "private"}).text
    assert 'aria-label="up"' in page
    assert 'aria-label="down"' in page
    spec = visitor.get(f"{BOARD}/figures/shake-up.json").json()
    rows = next(iter(spec["datasets"].values())) if "datasets" in spec else spec["data"]["values"]
    assert {(row["team"], row["board"], row["rank"]) for row in rows} == {
        ("rose", "public", 2),
        ("rose", "private", 1),
        ("fell", "public", 1),
        ("fell", "private", 2),
    }


def test_own_team_is_highlighted_in_the_shake_up(server, visitor, monkeypatch):
    monkeypatch.setattr(leaderboard_pages, "SLOPED_TEAMS", 1)
    competition = server.competition(state="final")
    server.account("ada")
    visitor.log_in("ada")
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        private = competitions.get_split(session, competition, Visibility.PRIVATE)
        ada = accounts.find(session, "ada")
        for name, score in (("first", 0.3), ("second", 0.2), ("mine", 0.1)):
            team = add_team(session, competition, name)
            scored(session, team, public, score)
            scored(session, team, private, score)
        session.add(Membership(team_id=team.id, account_id=ada.id, competition_id=competition.id))
    rows = visitor.get(f"{BOARD}/figures/shake-up.json").json()["data"]["values"]
    assert {(row["team"], row["own"]) for row in rows} == {("first", "no"), ("mine", "yes")}
    private = {row["label"]: (row["place"], row["moved"]) for row in rows if row["board"] == "private"}
    assert private == {"1  first": (1, "stayed"), "3  mine": (2, "stayed")}, "no gap, and the rank is written"


def test_scores_over_time_only_rise(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        team = add_team(session, competition, "ada")
        for hours_ago, score in ((3, 0.05), (2, 0.03), (1, 0.08)):
            scored(session, team, public, score, hours_ago=hours_ago)
    spec = visitor.get(f"{BOARD}/figures/scores.json").json()
    assert [row["score"] for row in spec["data"]["values"]] == [0.05, 0.08, 0.08]


def test_an_organiser_is_told_that_the_private_board_is_sealed(server: Instance, visitor: Visitor) -> None:
    olga = server.account("olga", Role.ORGANISER)
    fill(server, server.competition(organiser=olga, state="provisional"), 2)
    visitor.log_in("olga")
    assert "Only organisers see this leaderboard" in visitor.get(BOARD, params={"board": "private"}).text


def test_the_page_asks_the_same_queries_for_any_number_of_teams(server: Instance, visitor: Visitor) -> None:
    counts = []
    for teams in (1, 30):
        slug = f"c{teams}"
        fill(server, server.competition(slug), 0)
        competition = server.competition(f"d{teams}")
        with server.database.write() as session:
            public = competitions.get_split(session, competition, Visibility.PUBLIC)
            for place in range(teams):
                scored(session, add_team(session, competition, f"{slug}-{place}"), public, 0.1)
        with counted_queries(server.database.engine) as queries:
            visitor.get(f"/competitions/d{teams}/leaderboard")
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 8


def test_a_teams_page_tells_what_the_board_does(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    fill(server, competition, 2)
    page = visitor.get(BOARD).text
    address = re.search(r'href="(teams/[0-9a-f]+)">team-001<', page)
    assert address
    shown = plain_text(visitor.get(f"/competitions/digits/{address[1]}").text)
    assert "Public rank 2 of 2 teams" in shown
    assert "0.14990" in shown
    assert "Private" not in shown
    assert f"{SEALED - 0.002:.5f}" not in shown


def test_a_team_that_is_on_no_board_has_no_page(server: Instance, visitor: Visitor) -> None:
    competition = server.competition()
    with server.database.write() as session:
        unscored = add_team(session, competition, "unscored").id
    assert visitor.get(f"/competitions/digits/teams/{unscored}").status_code == 404
    assert visitor.get("/competitions/digits/teams/none").status_code == 404


def test_a_disqualified_team_has_a_page_for_organisers_only(server, visitor, digits):
    with server.database.write() as session:
        team = add_team(session, digits, "banned")
        scored(session, team, competitions.get_split(session, digits, Visibility.PUBLIC), 0.1)
        team.disqualified_at = now()
        address = f"/competitions/digits/teams/{team.id}"
    assert "disqualified" in plain_text(visitor.get(address).text)
    visitor.client.cookies.clear()
    assert visitor.get(address).status_code == 404


def test_many_teams_are_drawn_as_a_histogram(server, visitor, monkeypatch):
    monkeypatch.setattr(leaderboard_view, "MAX_MARKS", 2)
    fill(server, server.competition(), 3)
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


def test_organisers_read_on_the_board_where_retraining_is_first(server: Instance, visitor: Visitor) -> None:
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=olga)
    fill(server, competition, 1)
    with server.database.write() as session:
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        split.retraining_time_s, split.retraining_cpu_s, split.start_cpu_s = 1.0, 0.5, 0.02
    said = "Retraining from scratch fits into a run's limit"
    assert said not in plain_text(visitor.get(BOARD).text)
    visitor.log_in("olga")
    assert said in plain_text(visitor.get(BOARD).text)
