"""The leaderboard over HTTP."""

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from tests.support.instance import Instance
from tests.support.scores import add_team, scored


def seed(server: Instance, *, state: str = "open") -> None:
    competition = server.competition(state=state)
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        public.oracle = {"final_score": 0.2}
        for name, score in (("ada", 0.1), ("bob", 0.1), ("cyd", 0.05)):
            scored(session, add_team(session, competition, name), public, score)


def test_the_board_is_public(server: Instance) -> None:
    seed(server)
    body = server.client.get("/api/v1/competitions/digits/leaderboard").json()
    assert body["oracle"] == {"score": 0.2}
    assert body["teams"] == 3
    assert sorted((row["rank"], row["team"]) for row in body["rows"] if row["rank"]) == [
        (1, "ada"),
        (1, "bob"),
        (3, "cyd"),
    ]
    assert body["rows"][0]["kind"] == "oracle"
    assert body["rows"][0]["team_id"] is None


def test_a_search_keeps_the_ranks_of_the_whole_board(server: Instance) -> None:
    seed(server)
    body = server.client.get("/api/v1/competitions/digits/leaderboard", params={"q": "CY"}).json()
    assert [(row["rank"], row["team"]) for row in body["rows"]] == [(3, "cyd")]
    assert body["total"] == 1


def test_lines_come_in_pages(server: Instance) -> None:
    seed(server)
    body = server.client.get("/api/v1/competitions/digits/leaderboard", params={"offset": 1, "limit": 2}).json()
    assert len(body["rows"]) == 2
    assert body["total"] == 4


def test_an_unknown_board_names_what_is_allowed(server: Instance) -> None:
    seed(server)
    answer = server.client.get("/api/v1/competitions/digits/leaderboard", params={"board": "secret"})
    assert answer.status_code == 422
    assert "public" in answer.text


def test_a_hidden_competition_has_no_board(server: Instance) -> None:
    seed(server, state="draft")
    assert server.client.get("/api/v1/competitions/digits/leaderboard").status_code == 404
