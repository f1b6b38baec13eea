"""Boards over real databases and over HTTP: what stands on a line, columns of metrics, the ladder."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.leaderboard import boards
from server.leaderboard.boards import Board
from server.leaderboard.ranking import RowKind
from server.metric_results.metric_results import hash_parameters
from server.models.account import Role
from server.models.competition import Competition, Split
from server.models.submission import Submission
from tests.support.instance import Instance
from tests.support.scores import add_metric, add_submission, add_team, scored
from tests.support.web import Visitor, counted_queries

BASE = "/api/v1/competitions/digits"
Line = tuple[int | None, str, float | None, int]


def get_split(session: Session, competition: Competition, visibility: Visibility = Visibility.PUBLIC) -> Split:
    split = competitions.get_split(session, competition, visibility)
    split.oracle = {"final_score": 0.2}
    return split


def lines(board: Board) -> list[Line]:
    return [(row.rank, row.entry.team, row.entry.score, row.entry.entries) for row in board.rows]


def test_a_line_shows_what_counts_of_a_team(both: Instance) -> None:
    olga = both.account("olga", Role.ORGANISER)
    competition = both.competition(organiser=olga)
    with both.database.write() as session:
        public = get_split(session, competition)
        names = ("ada", "bob", "host", "cheat", "judged", "again", "refunded", "unscored")
        teams = {name: add_team(session, competition, name, is_baseline=name == "host") for name in names}
        scores = {"ada": (0.05, 0.15), "bob": (0.1,), "host": (0.12,), "cheat": (0.19,), "judged": (0.02,)}
        for name, values in (scores | {"again": (0.01,)}).items():
            for value in values:
                scored(session, teams[name], public, value)
        scored(session, teams["judged"], public, 0.18).disqualified_at = now()
        scored(session, teams["again"], public, 0.17, is_current=False, scorer_version="0")
        for _ in range(2):
            scored(session, teams["refunded"], public, 0.005).refunded = True
        add_submission(session, teams["unscored"], stage="running")
        teams["cheat"].disqualified_at = now()
        session.flush()
        whole = boards.whole_board(session, competition, Visibility.PUBLIC)
        public_board = boards.board(session, competition, Visibility.PUBLIC, viewer=None)
        of_organiser = boards.board(session, competition, Visibility.PUBLIC, viewer=olga)
    shown: list[Line] = [
        (None, boards.ORACLE_NAME, 0.2, 0),
        (1, "ada", 0.15, 2),
        (None, "host", 0.12, 1),
        (2, "bob", 0.1, 1),
        (3, "judged", 0.02, 2),
        (4, "again", 0.01, 2),
        (5, "refunded", 0.005, 0),
    ]
    assert lines(public_board) == shown
    assert lines(of_organiser) == [*shown, (None, "cheat", 0.19, 1)], "others do not see who was disqualified"
    assert [row.entry.kind for row in whole.rows[:3]] == [RowKind.ORACLE, RowKind.TEAM, RowKind.BASELINE]
    assert whole.rows[1].share_of_oracle == pytest.approx(0.75)
    assert [row.entry.team for row in public_board.rows if row.entry.last_entry_at is None][1:] == ["refunded"]


@pytest.mark.parametrize("microsecond", [0, 123_456])
def test_line_times_equal_the_submissions_to_the_microsecond(both: Instance, microsecond: int) -> None:
    competition = both.competition()
    at = datetime(2030, 1, 2, 3, 4, 5, microsecond, tzinfo=UTC)
    with both.database.write() as session:
        public = get_split(session, competition)
        ada = add_team(session, competition, "ada")
        for hours, score in ((0, 0.1), (1, 0.01)):
            scored(session, ada, public, score).received_at = at + timedelta(hours=hours)
        session.flush()
        if both.database.engine.dialect.name == "postgresql":
            session.execute(text("SET LOCAL TIME ZONE 'Asia/Kolkata'"))
        entry = boards.whole_board(session, competition, Visibility.PUBLIC).rows[-1].entry
    assert (entry.received_at, entry.last_entry_at) == (at, at + timedelta(hours=1))
    assert entry.received_at is not None
    assert entry.received_at.tzinfo is UTC


def test_excluded_finals_are_not_on_the_private_board(both: Instance) -> None:
    olga = both.account("olga", Role.ORGANISER)
    competition = both.competition(organiser=olga, state="provisional")
    with both.database.write() as session:
        private = get_split(session, competition, Visibility.PRIVATE)
        teams = [add_team(session, competition, name) for name in ("final", "unchosen", "excluded")]
        entries = [scored(session, team, private, 0.1) for team in teams]
        entries[1].selected = False
        entries[2].excluded_at = now()
        session.flush()
        board = boards.board(session, competition, Visibility.PRIVATE, viewer=olga)
    assert [row.entry.team for row in board.rows if row.rank] == ["final"]


def test_intervals_are_shown_where_the_organiser_says_so(server: Instance) -> None:
    intervals = []
    for slug, extra in (("shown", "[scoring]\nshow_intervals = true"), ("hidden", "")):
        competition = server.competition(slug, extra=extra)
        with server.database.write() as session:
            team = add_team(session, competition, f"of {slug}")
            scored(session, team, get_split(session, competition), 0.1, interval=(0.08, 0.12))
            row = boards.whole_board(session, competition, Visibility.PUBLIC).rows[-1]
            intervals.append((row.entry.interval_low, row.tied_group))
    assert intervals == [(0.08, 1), (None, None)]


def test_the_number_of_queries_does_not_grow_with_the_teams(server: Instance) -> None:
    counts = []
    for number, teams in enumerate((2, 30)):
        competition = server.competition(f"c{number}")
        with server.database.write() as session:
            public = get_split(session, competition)
            for place in range(teams):
                scored(session, add_team(session, competition, f"t{number}-{place}"), public, 0.01 * place)
        with server.database.read() as session, counted_queries(server.database.engine) as queries:
            boards.whole_board(session, competition, Visibility.PUBLIC)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 5


def test_lines_are_searched_and_come_in_pages(server: Instance) -> None:
    competition = server.competition()
    with server.database.write() as session:
        public = get_split(session, competition)
        for name, score in (("ada", 0.1), ("bob", 0.1), ("cyd", 0.05)):
            scored(session, add_team(session, competition, name), public, score)
    body = server.client.get(f"{BASE}/leaderboard").json()
    assert (body["oracle"], body["teams"]) == ({"score": 0.2}, 3)
    assert sorted((row["rank"], row["team"]) for row in body["rows"][1:]) == [(1, "ada"), (1, "bob"), (3, "cyd")]
    assert (body["rows"][0]["kind"], body["rows"][0]["team_id"]) == ("oracle", None)
    searched = server.client.get(f"{BASE}/leaderboard", params={"q": "CY"}).json()
    assert ([(row["rank"], row["team"]) for row in searched["rows"]], searched["total"]) == ([(3, "cyd")], 1)
    page = server.client.get(f"{BASE}/leaderboard", params={"offset": 1, "limit": 2}).json()
    assert (len(page["rows"]), page["total"]) == (2, 4)
    unknown = server.client.get(f"{BASE}/leaderboard", params={"board": "secret"})
    assert (unknown.status_code, "public" in unknown.text) == (422, True)


REPORT = {
    "metrics": [{"id": "klom", "bins": 10}, {"id": "umia"}],
    "columns": ["umia", "klom"],
    "visible_to_participants": "public",
}


def make_boards(
    instance: Instance, visibility: Visibility = Visibility.PUBLIC, **report: object
) -> tuple[Board, Board]:
    """Return the board of organisers and that of everybody, of two teams of which one has metrics."""
    competition = instance.competition()
    with instance.database.write() as session:
        stored = session.get_one(Competition, competition.id)
        stored.config = stored.config | {"report": REPORT | report}
        stored.state = "final" if visibility is Visibility.PRIVATE else stored.state
        split = get_split(session, stored, visibility)
        ada, bob = add_team(session, stored, "ada"), add_team(session, stored, "bob")
        best = scored(session, ada, split, 0.15)
        add_metric(session, best, "umia", 0.51239, interval_low=0.50001, interval_high=0.60009)
        add_metric(session, best, "klom", 9.0, parameters_sha256=hash_parameters({}))  # of other parameters
        add_metric(session, scored(session, ada, split, 0.05), "umia", 0.9)
        scored(session, bob, split, 0.10)
        session.flush()
        whole = boards.board_for(session, stored, visibility, organiser=True)
        return whole, boards.board_for(session, stored, visibility, organiser=False)


def test_column_is_of_the_best_submission_beside_its_references(both: Instance) -> None:
    whole, public = make_boards(both)
    umia, klom = whole.columns
    assert (umia.id, klom.id) == ("umia", "klom")
    values = {row.entry.team: umia.get(row.entry) for row in whole.rows}
    assert values["bob"] is None
    assert (values["ada"].value, values["ada"].interval_low) == (0.51239, 0.50001)  # type: ignore[union-attr]
    assert values[boards.ORACLE_NAME].value == umia.oracle == 0.01234  # type: ignore[union-attr]
    assert umia.original == 3.00049
    assert klom.values == {}, "a value of other parameters is not the column's"
    (rounded,) = public.columns[0].values.values()
    assert (rounded.value, rounded.interval_low, rounded.interval_high) == (0.512, 0.5, 0.6)
    assert (public.columns[0].oracle, public.columns[0].original) == (0.012, 3.0)
    answer = both.client.get(f"{BASE}/leaderboard").json()
    assert [(column["id"], column["original"]) for column in answer["columns"]] == [("umia", 3.0), ("klom", None)]
    found = {row["team"]: row["metrics"] for row in answer["rows"]}
    assert found["ada"] == {"umia": {"value": 0.512, "interval_low": 0.5, "interval_high": 0.6}}
    assert found["bob"] == {}
    html = both.client.get("/competitions/digits/leaderboard").text
    assert ("0.512" in html, "0.5124" in html, "has-columns-2" in html) == (True, False, True)


@pytest.mark.parametrize(
    ("visible", "visibility", "expected"),
    [("none", Visibility.PUBLIC, 0), ("public", Visibility.PRIVATE, 0), ("all", Visibility.PRIVATE, 2)],
)
def test_columns_are_shown_as_far_as_the_organiser_allows(server, visible, visibility, expected):
    whole, public = make_boards(server, visibility, visible_to_participants=visible)
    assert (len(whole.columns), len(public.columns)) == (2, expected)


LADDER = '[board]\nmode = "ladder"\nstep = 0.125\n'


def test_exact_scores_stay_hidden_on_a_ladder_until_the_reveal(both: Instance) -> None:
    olga = both.organised(extra=f'{LADDER}[submissions]\nmodes = ["function", "notebook"]\n')
    ada, sent = both.participant("ada"), []
    for score in (0.2617, 0.3111, 0.2999):
        sent.append(both.submit(ada).json()["id"])
        with both.database.write() as session:
            session.get_one(Submission, sent[-1]).entry_point = {"mode": "notebook" if score > 0.3 else "function"}
        both.score(sent[-1], score)
    assert [both.shown(ada, one)["score"]["final_score"] for one in sent] == [0.25, 0.25, 0.25]
    (row,) = both.client.get(f"{BASE}/leaderboard").json()["rows"]
    assert (row["team"], row["score"], row["mode"]) == ("ada", 0.25, "function"), "of the one that moved the ladder"
    figure = both.client.get("/competitions/digits/leaderboard/figures/scores.json").json()
    assert {point["score"] for point in figure["data"]["values"]} == {0.25}
    page = "/competitions/digits/submissions"
    ada_in = Visitor(both, "ada")
    assert [ada_in.get(f"{page}?show={show}").status_code for show in ("newest", "best")] == [200, 404]
    with both.database.read() as session:
        summary = boards.summary(session, session.query(Competition).one())
    assert (summary.teams, summary.best, summary.share_of_oracle) == (1, None, None)
    assert both.client.get(f"{BASE}/finals", headers=ada).json() == []
    assert both.client.get(f"/api/v1/submissions/{sent[0]}/receipt", headers=ada).status_code == 404
    both.close(olga)
    for submission in sent[1:]:
        both.score(submission, 0.2, visibility=Visibility.PRIVATE)
    both.tick()
    assert both.shown(olga, sent[1])["selected"] is True, "the close takes the truly best ones"
    both.client.post(f"{BASE}/reveal", headers=olga)
    assert [both.shown(ada, one)["score"]["final_score"] for one in sent] == [0.2617, 0.3111, 0.2999]
