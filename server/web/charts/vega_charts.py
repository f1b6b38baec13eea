"""Figures as Vega-Lite specifications. The browser draws them without `eval`, in the theme of the page."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from math import ceil, floor, log10
from typing import Any

from server.web.charts.label_placement import LABEL_PX, place_labels

BIN_AXIS = {"format": "~g", "labelOverlap": "parity", "labelSeparation": 14, "grid": False}
BOARDS = ("public", "private")
MOVES = ("rose", "fell", "stayed")
PARETO_KINDS = ("on the frontier", "dominated", "the oracle", "original model")
MAX_ORACLE_RATIO = 3  # times the best score: beyond it, the oracle would squeeze all scores to the axis
DECADES = 100  # from the least to the largest score: then the axis is of logarithms
LINE_PX = 17  # of a name on the slope chart
FAULT_NAMES = {"participant": "participant's", "organiser": "organiser's", "host": "host's"}


def load_altair() -> Any:
    import altair  # noqa: PLC0415 (takes a second, and most pages have no figure)

    return altair


def throughput(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Runs done in each hour. rows: hour (ISO), runs."""
    alt = load_altair()
    top = max([1, *(row["runs"] for row in rows)])  # of nothing but zeros no axis can be made
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(cornerRadiusTopLeft=2, cornerRadiusTopRight=2)
        .encode(
            x=alt.X("hour:T", title=None, axis=alt.Axis(format="%H:%M", tickCount=8, grid=False)),
            y=alt.Y(
                "runs:Q",
                title="runs an hour",
                scale=alt.Scale(domain=[0, top], nice=True),
                axis=alt.Axis(tickCount=4, tickMinStep=1, format=",d"),
            ),
            tooltip=[alt.Tooltip("hour:T", format="%d %b %H:%M"), "runs:Q"],
        )
    )
    return sized(chart, height=160)


def failures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Failures of each day, by whose fault they were. rows: day, fault, count."""
    alt = load_altair()
    of_days: Counter[str] = Counter()
    for row in rows:
        of_days[row["day"]] += row["count"]
    top = max([1, *of_days.values()])
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X(
                "day:O",
                sort=None,
                title=None,
                axis=alt.Axis(labelAngle=0, grid=False, labelOverlap="greedy", labelSeparation=8),
            ),
            y=alt.Y(
                "count:Q",
                title="failures",
                scale=alt.Scale(domain=[0, top], nice=True),
                axis=alt.Axis(tickCount=4, tickMinStep=1, format="d"),
            ),
            color=alt.Color("fault:N", title="fault", legend=alt.Legend(orient="top")),
            tooltip=["day:O", "fault:N", "count:Q"],
        )
    )
    return sized(chart, height=160)


def score_over_time(
    rows: list[dict[str, Any]],
    *,
    teams: list[str],
    own: str | None,
    oracle: float | None,
    baseline: tuple[str, float] | None = None,
) -> dict[str, Any]:
    """Best score so far of some teams, as steps. teams: best first. baseline: name and score of the best line."""
    alt = load_altair()
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X(
            "at:T",
            title=None,
            axis=alt.Axis(grid=False, format=_time_format(rows), tickCount=8, labelOverlap="greedy", labelSeparation=8),
        ),
        y=_score_axis("best score", [row["score"] for row in rows], oracle),
        color=alt.Color("team:N", title=None, sort=teams, legend=alt.Legend(symbolLimit=12, labelLimit=240)),
        tooltip=["team:N", alt.Tooltip("score:Q", format=".5f"), alt.Tooltip("at:T", format="%d %b %H:%M")],
    )
    chosen = alt.selection_point(fields=["team"], bind="legend")  # nothing chosen is everything
    clear = alt.condition(chosen, alt.value(1), alt.value(0.12))
    lines = base.mark_line(interpolate="step-after").encode(
        strokeWidth=alt.condition(alt.datum.team == (own or ""), alt.value(3.5), alt.value(1.5)), opacity=clear
    )
    points = (
        base.mark_point(filled=True, size=44)
        .encode(shape=alt.Shape("team:N", title=None, sort=teams), opacity=clear)
        .add_params(chosen)
    )
    marks = []
    if baseline is not None:
        words = f"{baseline[0]}, the best reference line"
        marks = _line_at(baseline[1], words, dash=[2, 3], is_right=True)
    if oracle is not None:
        marks += _oracle_mark(oracle, [row["score"] for row in rows])
    return sized(alt.layer(lines, points, *marks), height=240 if oracle is None else 280)


def scores_of_team(rows: list[dict[str, Any]], *, oracle: float | None) -> dict[str, Any]:
    """Scores of one team with their intervals, and the best so far as steps. rows: at (ISO), name, score, low, high."""
    alt = load_altair()
    best = accumulate((row["score"] for row in rows), max)
    values = [row | {"best": highest} for row, highest in zip(rows, best, strict=True)]
    axis = alt.Axis(grid=False, format=_time_format(rows), tickCount=8, labelOverlap="greedy", labelSeparation=8)
    base = alt.Chart(alt.Data(values=values)).encode(x=alt.X("at:T", title=None, axis=axis))
    tooltip = ["name:N", alt.Tooltip("score:Q", format=".5f"), alt.Tooltip("at:T", format="%d %b %H:%M")]

    scores = [row["score"] for row in rows]

    def y(field: str) -> Any:
        return _score_axis("score", scores, oracle, field=field)

    layers = [
        base.mark_line(interpolate="step-after", strokeWidth=1.5, opacity=0.55).encode(y=y("best:Q")),
        base.mark_circle(size=60, opacity=1).encode(y=y("score:Q"), tooltip=tooltip),
    ]
    if any(row["low"] is not None for row in rows):  # of nothing no axis can be made
        ranges = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=5, opacity=0.35)
        layers.insert(0, ranges.encode(y=y("low:Q"), y2="high:Q"))
    marks = [] if oracle is None else _oracle_mark(oracle, scores)
    return sized(alt.layer(*layers, *marks), height=200)


def _spans_decades(scores: Sequence[float]) -> bool:
    """Return whether one axis from 0 would not show the least of these scores beside the largest."""
    positive = [score for score in scores if score > 0]
    return bool(positive) and max(positive) >= DECADES * min(positive)


def _score_axis(title: str, scores: Sequence[float], oracle: float | None, *, field: str = "score:Q") -> Any:
    """Return the axis of scores: of logarithms where they span decades, with 0 on it."""
    alt = load_altair()
    if not _spans_decades(scores):
        return alt.Y(field, title=title, axis=alt.Axis(tickCount=5))
    least, top = min(score for score in scores if score > 0), max(*scores, oracle or 0.0)
    ticks = [10.0**power for power in range(floor(log10(least)), ceil(log10(top)) + 1)]
    return alt.Y(
        field,
        title=f"{title}, logarithmic",
        scale=alt.Scale(type="symlog", constant=least, domain=[0, 1.05 * top]),
        axis=alt.Axis(values=[0, *ticks], format="~g"),
    )


def _line_at(score: float, words: str, *, dash: list[int], is_right: bool = False) -> list[Any]:
    """Return a line over the whole width at a score, and what it is, at its left end or its right one."""
    alt = load_altair()
    mark = alt.Chart(alt.Data(values=[{"score": score}]))
    rule = mark.mark_rule(strokeDash=dash, strokeWidth=1.5).encode(y="score:Q")
    align, dx, x = ("right", -4, "width") if is_right else ("left", 4, 0)
    return [rule, mark.mark_text(align=align, dx=dx, dy=-6, text=words).encode(y="score:Q", x=alt.value(x))]


def _oracle_mark(oracle: float, scores: Sequence[float]) -> list[Any]:
    """Return the oracle's line; where it lies so high that the scores would lie flat on the axis, words at the top."""
    alt = load_altair()
    best = max(scores, default=0.0)
    if 0 < best < oracle / MAX_ORACLE_RATIO and not _spans_decades(scores):
        mark = alt.Chart(alt.Data(values=[{"score": oracle}]))
        words = f"↑ oracle {oracle:.5f}, {oracle / best:.0f} times the best"
        return [mark.mark_text(align="right", dx=-4, dy=-6, text=words).encode(x=alt.value("width"), y=alt.value(0))]
    return _line_at(oracle, "the oracle", dash=[5, 4])


def score_against_cost(rows: list[dict[str, Any]], *, oracle: float | None) -> dict[str, Any]:
    """Scores over what a run takes, a point a submission. rows: name, seconds, score."""
    alt = load_altair()
    points = (
        alt.Chart(alt.Data(values=rows))
        .mark_point(filled=True, size=70, opacity=0.8)
        .encode(
            x=alt.X(
                "seconds:Q",
                title="seconds of the median run, at most",
                scale=alt.Scale(domain=[0, 1.15 * max([*(row["seconds"] for row in rows), 1e-3])]),
                axis=alt.Axis(tickCount=6, grid=False),
            ),
            y=_score_axis("score", [row["score"] for row in rows], oracle),
            tooltip=["name:N", alt.Tooltip("score:Q", format=".5f"), alt.Tooltip("seconds:Q", format=".3g")],
        )
    )
    marks = [] if oracle is None else _oracle_mark(oracle, [row["score"] for row in rows])
    return sized(alt.layer(points, *marks), height=240)


def _time_format(rows: list[dict[str, Any]]) -> str:
    """Return how an axis from the first to the last of these times is labelled: by day, or within two days by hour."""
    times = [datetime.fromisoformat(row["at"]) for row in rows]
    return "%d %b" if times and max(times) - min(times) > timedelta(days=2) else "%d %b %H:%M"


def slope(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Public and private rank of each team, joined by a line. rows: team, board, rank, own (yes: the reader's).

    On either side the teams stand in the order of their ranks with a line's height for each, so that no name covers
    another however far apart the ranks lie; the rank is written beside the name.
    """
    alt = load_altair()
    is_own = alt.datum.own == "yes"
    base = alt.Chart(alt.Data(values=_placed(rows))).encode(
        x=alt.X(
            "board:N",
            sort=list(BOARDS),
            title=None,
            scale=alt.Scale(type="point", padding=0.8),  # space for the names
            axis=alt.Axis(labelAngle=0, grid=False, orient="top", domain=False, ticks=False),
        ),
        y=alt.Y("place:Q", scale=alt.Scale(reverse=True, zero=False, nice=False, padding=8), axis=None),
        detail="team:N",
        tooltip=["team:N", "board:N", "rank:Q", "moved:N"],
    )
    thick = alt.condition(is_own, alt.value(3.5), alt.value(1.5))
    clear = alt.condition(is_own, alt.value(1), alt.value(0.75))
    moved = alt.Color("moved:N", title=None, scale=alt.Scale(domain=list(MOVES)), legend=alt.Legend(orient="top"))
    layers = [
        base.mark_line().encode(strokeWidth=thick, opacity=clear, color=moved),
        base.mark_circle(size=36).encode(opacity=clear, color=moved),
    ]
    for board, align, dx in (("public", "right", -8), ("private", "left", 8)):
        for own, weight in (("no", "normal"), ("yes", "bold")):
            if not any(row["own"] == own for row in rows):
                continue  # of nothing no axis can be made
            names = base.mark_text(
                align=align, dx=dx, fontSize=11, fontWeight=weight, limit=alt.expr("0.3 * width - 12")
            ).transform_filter((alt.datum.board == board) & (alt.datum.own == own))
            layers.append(names.encode(text="label:N"))
    return sized(alt.layer(*layers), height=max(160, LINE_PX * len(rows) // 2))


def _placed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with place (from 1 on each board), label and moved (`rose`, `fell` or `stayed`)."""
    ranks = {(row["board"], row["team"]): row["rank"] for row in rows}
    placed = []
    for board in BOARDS:
        here = sorted((row for row in rows if row["board"] == board), key=lambda row: (row["rank"], row["team"]))
        for place, row in enumerate(here, start=1):
            before, after = (ranks[name, row["team"]] for name in BOARDS)
            label = f"{row['rank']}  {row['team']}"
            moved = "rose" if after < before else "fell" if after > before else "stayed"
            placed.append({**row, "place": place, "label": label, "moved": moved})
    return placed


def histogram(rows: list[dict[str, Any]], *, title: str, bins: int = 30) -> dict[str, Any]:
    """One quantity of the unlearned and of the retrained models. rows: value, models."""
    alt = load_altair()
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(opacity=0.62, binSpacing=0)
        .encode(
            x=alt.X("value:Q", bin=alt.Bin(maxbins=bins), title=title, axis=BIN_AXIS),
            y=alt.Y("count():Q", stack=None, title="count", axis=alt.Axis(tickCount=4)),
            color=alt.Color("models:N", title=None, legend=alt.Legend(orient="top")),
        )
    )
    return sized(chart, height=170)


def time_of_runs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Wall time of each run. rows: run (from 1), seconds."""
    alt = load_altair()
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_circle(size=16, opacity=0.7)
        .encode(
            x=alt.X("run:Q", title="run", scale=alt.Scale(nice=False), axis=alt.Axis(format="d", grid=False)),
            y=alt.Y("seconds:Q", title="seconds", axis=alt.Axis(tickCount=4)),
            tooltip=["run:Q", alt.Tooltip("seconds:Q", format=".2f")],
        )
    )
    return sized(chart, height=170)


def pairs(rows: list[dict[str, Any]], *, x: str, y: str) -> dict[str, Any]:
    """One quantity of two submissions, a point an example, and the line of equal values. rows: example, x, y."""
    alt = load_altair()
    end = max((value for row in rows for value in (row["x"], row["y"])), default=1.0) or 1.0
    points = (
        alt.Chart(alt.Data(values=rows))
        .mark_circle(size=22, opacity=0.55)
        .encode(
            x=alt.X("x:Q", title=x, axis=alt.Axis(tickCount=5)),
            y=alt.Y("y:Q", title=y, axis=alt.Axis(tickCount=5)),
            tooltip=[
                alt.Tooltip("example:Q", title="forget example"),
                alt.Tooltip("x:Q", format=".3f", title=x),
                alt.Tooltip("y:Q", format=".3f", title=y),
            ],
        )
    )
    equal = alt.Chart(alt.Data(values=[{"x": 0, "y": 0}, {"x": end, "y": end}]))
    diagonal = equal.mark_line(strokeDash=[5, 4], strokeWidth=1, opacity=0.8).encode(x="x:Q", y="y:Q")
    return sized(alt.layer(diagonal, points), height=300)


def scatter(rows: list[dict[str, Any]], *, x: str, y: str, kinds: Sequence[str]) -> dict[str, Any]:
    """Two metrics of several submissions or methods, their names placed so that none covers another."""
    alt = load_altair()
    labelled, height = place_labels(rows)
    base = alt.Chart(alt.Data(values=labelled)).encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(zero=False, padding=24), axis=alt.Axis(tickCount=5)),
        y=alt.Y("y:Q", title=y, scale=alt.Scale(zero=False, padding=16), axis=alt.Axis(tickCount=5)),
        tooltip=[
            "name:N",
            alt.Tooltip("x:Q", format=".4g", title=x),
            alt.Tooltip("y:Q", format=".4g", title=y),
            "kind:N",
        ],
    )
    kind = alt.Color("kind:N", title=None, sort=list(kinds), legend=alt.Legend(orient="top"))
    shape = alt.Shape("kind:N", title=None, sort=list(kinds))
    points = base.mark_point(filled=True, size=70, opacity=1).encode(color=kind, shape=shape)
    lines = base.transform_filter("datum.label_y != datum.y").mark_rule(strokeWidth=1, opacity=0.6)
    names = [
        base.transform_filter(f"datum.side == '{align}'")
        .mark_text(align=align, dx=dx, fontSize=11, limit=LABEL_PX, baseline="middle")
        .encode(text="name:N", y="label_y:Q")
        for align, dx in (("left", 8), ("right", -8))
    ]
    return sized(alt.layer(lines.encode(y="y:Q", y2="label_y:Q"), points, *names), height=height)


def sized(chart: Any, *, height: int) -> dict[str, Any]:
    """Return the specification, as wide as its place on the page."""
    sized = chart.properties(width="container", height=height)
    return {**sized.to_dict(), "background": "transparent", "config": {"view": {"stroke": None}}}
