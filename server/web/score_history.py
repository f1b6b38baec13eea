"""A team's scores over time, as a drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from server.submissions.views import SubmissionView
from server.web.template_filters import score

WIDTH, HEIGHT = 1000, 200
EDGE = 12
HEADROOM = 1.08


@dataclass(frozen=True)
class Mark:
    """One score that a team got. label: what it was for."""

    at: datetime
    score: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True)
class Point:
    """One score. Positions lie in the drawing; low and high are the ends of its interval."""

    x: float
    y: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True)
class ScoreHistory:
    """The drawing: its points, the best so far as an SVG path, the oracle's line, what the axes say."""

    points: list[Point]
    best: str
    oracle: float | None
    top: float
    first_at: datetime
    last_at: datetime
    label: str


def of_views(views: Sequence[SubmissionView]) -> list[Mark]:
    """Return the scores of those submissions that have one."""
    return [
        Mark(
            at=view.submission.received_at,
            score=view.score.final_score,
            low=view.score.interval_low,
            high=view.score.interval_high,
            label=view.submission.message or view.submission.filename,
        )
        for view in views
        if view.score
    ]


def draw(marks: Sequence[Mark], *, oracle: float | None) -> ScoreHistory | None:
    """Return the scores over time; None where there are fewer than two."""
    if len(marks) < 2:
        return None
    ordered = sorted(marks, key=lambda mark: mark.at)
    first_at, last_at = ordered[0].at, ordered[-1].at
    span_s = (last_at - first_at).total_seconds() or 1.0
    highest = max(mark.high or mark.score for mark in ordered)
    top = HEADROOM * (max(highest, oracle or 0.0) or 1.0)
    points = [_point(mark, first_at, span_s=span_s, top=top) for mark in ordered]
    best, latest = max(mark.score for mark in ordered), ordered[-1].score
    return ScoreHistory(
        points=points,
        best=_best_so_far(points),
        oracle=_y(oracle, top) if oracle else None,
        top=top,
        first_at=first_at,
        last_at=last_at,
        label=f"{len(ordered)} scores over time, the best {score(best)}, the latest {score(latest)}",
    )


def _point(mark: Mark, first_at: datetime, *, span_s: float, top: float) -> Point:
    x = EDGE + (mark.at - first_at).total_seconds() / span_s * (WIDTH - 2 * EDGE)
    return Point(
        x=round(x, 1),
        y=_y(mark.score, top),
        low=None if mark.low is None else _y(mark.low, top),
        high=None if mark.high is None else _y(mark.high, top),
        label=f"{mark.label}: {score(mark.score)}",
    )


def _best_so_far(points: Sequence[Point]) -> str:
    """Return steps: each reaches to the point that is better than all before it."""
    path, best = f"M{points[0].x} {points[0].y}", points[0].y
    for point in points[1:]:
        path += f"H{point.x}"
        if point.y < best:
            best = point.y
            path += f"V{best}"
    return path


def _y(value: float, top: float) -> float:
    return round(HEIGHT - min(value / top, 1.0) * HEIGHT, 1)
