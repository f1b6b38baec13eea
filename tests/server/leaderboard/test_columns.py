"""Metrics as columns of the board: of the submission that counts, shown as far as the organiser allows."""

import pytest

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.leaderboard import boards
from server.leaderboard.boards import Board
from server.metric_results.metric_results import hash_parameters
from server.models.competition import Competition
from tests.support.instance import Instance
from tests.support.scores import add_metric, add_team, scored

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
        split = competitions.get_split(session, stored, visibility)
        split.oracle = {"final_score": 0.2}
        ada, bob = add_team(session, stored, "ada"), add_team(session, stored, "bob")
        best = scored(session, ada, split, 0.15)
        add_metric(session, best, "umia", 0.51239, interval_low=0.50001, interval_high=0.60009)
        add_metric(session, best, "klom", 9.0, parameters_sha256=hash_parameters({}))  # of other parameters
        worse = scored(session, ada, split, 0.05)
        add_metric(session, worse, "umia", 0.9)
        scored(session, bob, split, 0.10)
        session.flush()
        whole = boards.board_for(session, stored, visibility, organiser=True)
        return whole, boards.board_for(session, stored, visibility, organiser=False)


def test_column_is_of_the_best_submission_beside_its_references(both: Instance) -> None:
    whole, _public = make_boards(both)
    umia, klom = whole.columns
    assert (umia.id, klom.id) == ("umia", "klom")
    values = {row.entry.team: umia.get(row.entry) for row in whole.rows}
    assert values["bob"] is None
    assert (values["ada"].value, values["ada"].interval_low) == (0.51239, 0.50001)  # type: ignore[union-attr]
    assert values[boards.ORACLE_NAME].value == umia.oracle == 0.01234  # type: ignore[union-attr]
    assert umia.original == 3.00049
    assert klom.values == {}, "a value of other parameters is not the column's"


def test_everybody_sees_the_column_rounded(server: Instance) -> None:
    _whole, public = make_boards(server)
    (found,) = public.columns[0].values.values()
    assert (found.value, found.interval_low, found.interval_high) == (0.512, 0.5, 0.6)
    assert (public.columns[0].oracle, public.columns[0].original) == (0.012, 3.0)


@pytest.mark.parametrize(
    ("visible", "visibility", "expected"),
    [("none", Visibility.PUBLIC, 0), ("public", Visibility.PRIVATE, 0), ("all", Visibility.PRIVATE, 2)],
)
def test_columns_are_shown_as_far_as_the_organiser_allows(server, visible, visibility, expected):
    whole, public = make_boards(server, visibility, visible_to_participants=visible)
    assert len(whole.columns) == 2
    assert len(public.columns) == expected


def test_api_and_page_show_the_columns(server: Instance) -> None:
    make_boards(server)
    answer = server.client.get("/api/v1/competitions/digits/leaderboard").json()
    assert [(column["id"], column["original"]) for column in answer["columns"]] == [("umia", 3.0), ("klom", None)]
    found = {row["team"]: row["metrics"] for row in answer["rows"]}
    assert found["ada"] == {"umia": {"value": 0.512, "interval_low": 0.5, "interval_high": 0.6}}
    assert found["bob"] == {}
    html = server.client.get("/competitions/digits/leaderboard").text
    assert "0.512" in html
    assert "0.5124" not in html
    assert "has-columns-2" in html
