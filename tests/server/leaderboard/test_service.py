"""Boards over a real database, on SQLite and on PostgreSQL, and over HTTP."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.leaderboard import boards
from server.leaderboard.ranking import RowKind
from server.models.account import Account, Role
from server.models.competition import Competition, Split, Team
from tests.support.instance import Instance
from tests.support.scores import add_submission, add_team, scored
from tests.support.web import counted_queries

ORACLE = 0.2


def get_splits(session: Session, competition: Competition) -> tuple[Split, Split]:
    public = competitions.get_split(session, competition, Visibility.PUBLIC)
    private = competitions.get_split(session, competition, Visibility.PRIVATE)
    for split in (public, private):
        split.oracle = {"final_score": ORACLE}
    return public, private


def names(session: Session, competition: Competition, viewer: Account | None = None) -> list[tuple[int | None, str]]:
    board = boards.board(session, competition, Visibility.PUBLIC, viewer=viewer)
    return [(row.rank, row.entry.team) for row in board.rows]


def test_a_team_stands_with_its_best_score(both: Instance) -> None:
    competition = both.competition()
    with both.database.write() as session:
        public, _ = get_splits(session, competition)
        ada, bob = add_team(session, competition, "ada"), add_team(session, competition, "bob")
        scored(session, ada, public, 0.05)
        scored(session, ada, public, 0.15)
        scored(session, bob, public, 0.10)
        board = boards.whole_board(session, competition, Visibility.PUBLIC)
    assert [(row.rank, row.entry.team, row.entry.score) for row in board.rows] == [
        (None, boards.ORACLE_NAME, 0.2),
        (1, "ada", 0.15),
        (2, "bob", 0.10),
    ]
    assert board.rows[1].entry.entries == 2
    assert board.rows[1].share_of_oracle == pytest.approx(0.75)


@pytest.mark.parametrize("microsecond", [0, 400_000, 123_456])
def test_line_times_equal_the_submissions_to_the_microsecond(both: Instance, microsecond: int) -> None:
    competition = both.competition()
    at = datetime(2030, 1, 2, 3, 4, 5, microsecond, tzinfo=UTC)
    with both.database.write() as session:
        public, _ = get_splits(session, competition)
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


def test_a_refunded_submission_counts_as_no_entry(both: Instance) -> None:
    competition = both.competition()
    with both.database.write() as session:
        public, _ = get_splits(session, competition)
        for name, n_refunded in (("one", 1), ("both", 2)):
            team = add_team(session, competition, name)
            for place in range(2):
                scored(session, team, public, 0.1).refunded = place < n_refunded
        session.flush()
        rows = boards.whole_board(session, competition, Visibility.PUBLIC).rows
    assert {row.entry.team: (row.entry.entries, row.entry.last_entry_at is None) for row in rows if row.rank} == {
        "one": (1, False),
        "both": (0, True),
    }


def test_an_unscored_team_is_not_on_the_board(both: Instance) -> None:
    competition = both.competition()
    with both.database.write() as session:
        add_submission(session, add_team(session, competition, "ada"), stage="running")
        assert boards.whole_board(session, competition, Visibility.PUBLIC).rows == ()


def test_only_the_current_evaluation_counts(both: Instance) -> None:
    competition = both.competition()
    with both.database.write() as session:
        public, _ = get_splits(session, competition)
        ada = add_team(session, competition, "ada")
        scored(session, ada, public, 0.19, is_current=False, scorer_version="0")
        scored(session, ada, public, 0.01)
        board = boards.whole_board(session, competition, Visibility.PUBLIC)
    assert [row.entry.score for row in board.rows if row.entry.team == "ada"] == [0.01]


def test_a_disqualified_submission_does_not_count(both: Instance) -> None:
    competition = both.competition()
    with both.database.write() as session:
        public, _ = get_splits(session, competition)
        ada = add_team(session, competition, "ada")
        scored(session, ada, public, 0.19).disqualified_at = now()
        scored(session, ada, public, 0.01)
        session.flush()
        board = boards.whole_board(session, competition, Visibility.PUBLIC)
    assert [row.entry.score for row in board.rows if row.entry.team == "ada"] == [0.01]


def test_a_disqualified_team_is_shown_to_organisers_only(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=olga)
    with server.database.write() as session:
        public, _ = get_splits(session, competition)
        for name, score in (("cheat", 0.19), ("honest", 0.1)):
            scored(session, add_team(session, competition, name), public, score)
        session.flush()
        cheat = next(t for t in session.scalars(select(Team)) if t.name == "cheat")
        cheat.disqualified_at = now()
    with server.database.read() as session:
        seen = names(session, competition)
        seen_by_organiser = names(session, competition, olga)
    assert [pair for pair in seen if pair[1] == "cheat"] == []
    assert (1, "honest") in seen
    assert seen_by_organiser[-1] == (None, "cheat")


def test_a_baseline_takes_no_rank(both: Instance) -> None:
    competition = both.competition()
    with both.database.write() as session:
        public, _ = get_splits(session, competition)
        scored(session, add_team(session, competition, "host", is_baseline=True), public, 0.12)
        scored(session, add_team(session, competition, "ada"), public, 0.1)
        rows = boards.whole_board(session, competition, Visibility.PUBLIC).rows
    assert [(row.rank, row.entry.kind) for row in rows] == [
        (None, RowKind.ORACLE),
        (None, RowKind.BASELINE),
        (1, RowKind.TEAM),
    ]


def test_an_organiser_sees_the_private_board_once_it_is_computed(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=olga, state="provisional")
    with server.database.read() as session:
        assert boards.board(session, competition, Visibility.PRIVATE, viewer=olga).visibility is Visibility.PRIVATE


def test_excluded_finals_are_not_on_the_private_board(both: Instance) -> None:
    competition = both.competition()
    with both.database.write() as session:
        _, private = get_splits(session, competition)
        teams = [add_team(session, competition, name) for name in ("final", "unchosen", "excluded")]
        entries = [scored(session, team, private, 0.1) for team in teams]
        entries[1].selected = False
        entries[2].excluded_at = now()
        session.flush()
        board = boards.whole_board(session, competition, Visibility.PRIVATE)
    assert [row.entry.team for row in board.rows if row.rank] == ["final"]


def test_intervals_are_shown_where_the_organiser_says_so(server: Instance) -> None:
    shown = server.competition("shown", extra="[scoring]\nshow_intervals = true")
    hidden = server.competition("hidden")
    intervals = []
    with server.database.write() as session:
        for number, competition in enumerate((shown, hidden)):
            public, _ = get_splits(session, competition)
            scored(session, add_team(session, competition, f"ada{number}"), public, 0.1, interval=(0.08, 0.12))
            row = boards.whole_board(session, competition, Visibility.PUBLIC).rows[-1]
            intervals.append((row.entry.interval_low, row.tied_group))
    assert intervals == [(0.08, 1), (None, None)]


def test_the_number_of_queries_does_not_grow_with_the_teams(server: Instance) -> None:
    counts = []
    for number, teams in enumerate((2, 30)):
        competition = server.competition(f"c{number}")
        with server.database.write() as session:
            public, _ = get_splits(session, competition)
            for place in range(teams):
                scored(session, add_team(session, competition, f"t{number}-{place}"), public, 0.01 * place)
        with server.database.read() as session, counted_queries(server.database.engine) as queries:
            boards.whole_board(session, competition, Visibility.PUBLIC)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 5


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
