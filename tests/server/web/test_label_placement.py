"""Names of a scatter's points: none covers another, and each stands at its own point where it can."""

from itertools import combinations

from server.web.charts.label_placement import HEIGHT_PX, LINE_PX, PADDING_PX, place_labels
from server.web.charts.vega_charts import scatter


def point(name: str, x: float, y: float) -> dict[str, object]:
    return {"name": name, "x": x, "y": y, "kind": "dominated"}


def lines(points: list[dict[str, object]]) -> list[float]:
    """Return where each name stands, pixels from the top, of points of one place and one more below and right."""
    placed, height = place_labels([*points, point("far", 1.0, 0.0)])
    return [(1.0 - one["label_y"]) * (height - 2 * PADDING_PX) for one in placed if one["name"] != "far"]


def test_names_are_written_towards_the_middle() -> None:
    placed, _ = place_labels([point("a", 0.0, 1.0), point("b", 4.0, 0.0)])
    assert [(one["name"], one["side"], one["label_y"]) for one in placed] == [("a", "left", 1.0), ("b", "right", 0.0)]


def test_names_of_one_place_stand_below_each_other() -> None:
    found = lines([point(f"team {number}", 0.0, 1.0) for number in range(12)])
    assert all(abs(a - b) >= LINE_PX - 1e-6 for a, b in combinations(found, 2))
    assert min(found) >= 0
    assert max(found) <= HEIGHT_PX - 2 * PADDING_PX


def test_chart_of_many_points_is_higher() -> None:
    points = [point(f"method {number}", 0.0, 1.0) for number in range(40)]
    assert place_labels(points)[1] > HEIGHT_PX
    assert all(abs(a - b) >= LINE_PX - 1e-6 for a, b in combinations(lines(points), 2))


def test_far_names_do_not_move_each_other() -> None:
    placed, _ = place_labels([point("left", 0.0, 0.0), point("right", 1.0, 0.0), point("above", 0.4, 1.0)])
    assert {one["label_y"] - one["y"] for one in placed} == {0.0}


def test_chart_draws_a_line_to_a_name_that_was_moved() -> None:
    made = scatter([point("a", 0.0, 0.0), point("b", 0.0, 0.0)], x="score", y="klom", kinds=["dominated"])
    rule, _, left, right = made["layer"]
    assert (rule["mark"]["type"], rule["encoding"]["y2"]["field"]) == ("rule", "label_y")
    assert [layer["mark"]["align"] for layer in (left, right)] == ["left", "right"]
    assert made["height"] == HEIGHT_PX


def test_nothing_to_place_is_no_error() -> None:
    assert place_labels([]) == ([], HEIGHT_PX)
