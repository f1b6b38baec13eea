"""Charts of boards: times that can be distinguished, and no layer of nothing."""

import pytest

from server.web.vega_charts import failures, score_over_time, slope


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
