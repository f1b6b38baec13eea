"""A team's own scores over time, and two of its submissions side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from server.submissions.service import SubmissionView
from server.web.template_filters import score

WIDTH, HEIGHT = 1000, 200
HEADROOM = 1.08


@dataclass(frozen=True)
class Point:
    """One score. Positions lie in the drawing; low and high are the ends of its interval."""

    x: float
    y: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True)
class ScoresOverTime:
    """The drawing: its points, the best so far as an SVG path, exact retraining's line, what the axes say."""

    points: list[Point]
    best: str
    oracle: float | None
    top: float
    first_at: datetime
    last_at: datetime
    label: str


def draw(views: Sequence[SubmissionView], *, oracle: float | None) -> ScoresOverTime | None:
    """Return the scores of these submissions over time; None where fewer than two have one."""
    scored = sorted((view for view in views if view.score), key=lambda view: view.submission.received_at)
    if len(scored) < 2:
        return None
    first_at, last_at = scored[0].submission.received_at, scored[-1].submission.received_at
    span_s = (last_at - first_at).total_seconds() or 1.0
    top = HEADROOM * (max(_highest(view) for view in scored) or 1.0)
    top = max(top, HEADROOM * (oracle or 0.0))
    points = [_point(view, first_at, span_s=span_s, top=top) for view in scored]
    values = [view.score.final_score for view in scored if view.score]
    return ScoresOverTime(
        points=points,
        best=_best_so_far(points),
        oracle=_y(oracle, top) if oracle else None,
        top=top,
        first_at=first_at,
        last_at=last_at,
        label=f"{len(values)} scores over time, the best {score(max(values))}, the latest {score(values[-1])}",
    )


def _highest(view: SubmissionView) -> float:
    found = view.score
    return (found.interval_high or found.final_score) if found else 0.0


def _point(view: SubmissionView, first_at: datetime, *, span_s: float, top: float) -> Point:
    sent, found = view.submission, view.score
    value = found.final_score if found else 0.0
    low, high = (found.interval_low, found.interval_high) if found else (None, None)
    x = 12 + (sent.received_at - first_at).total_seconds() / span_s * (WIDTH - 24)
    return Point(
        x=round(x, 1),
        y=_y(value, top),
        low=None if low is None else _y(low, top),
        high=None if high is None else _y(high, top),
        label=f"{sent.message or sent.filename}: {score(value)}",
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
