"""Where the names of a scatter's points are written, so that none covers another."""

from collections.abc import Mapping, Sequence
from typing import Any

LABEL_PX = 110  # widest name; longer ones are cut
LETTER_PX = 6.5
LINE_PX = 14
POINT_PX = 5
GAP_PX = 8  # between a point and its name
HEIGHT_PX, WIDTH_PX = 320, 440  # of the plot; the page may make it wider, which only moves names apart
PADDING_PX = 16

Box = tuple[float, float, float, float]  # left, right, top, bottom


def place_labels(points: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Return the points with side and label_y, and the height of the plot in pixels.

    points: with name, x and y. side: `left` where the name begins at the point, `right` where it ends there: it is
    written towards the middle, where there is room. label_y: at which value of y its middle is; y itself where nothing
    is in the way.
    """
    height = max(HEIGHT_PX, LINE_PX * (len(points) + 1) + 2 * PADDING_PX)
    low, span = _range(points, "y")
    unit = span / (height - 2 * PADDING_PX)  # of y, in a pixel
    left, width = _range(points, "x")
    pixels = [((point["x"] - left) / width * WIDTH_PX, (low + span - point["y"]) / unit) for point in points]
    taken = [(x - POINT_PX, x + POINT_PX, y - POINT_PX, y + POINT_PX) for x, y in pixels]
    placed = []
    for point, (x, y) in sorted(zip(points, pixels, strict=True), key=lambda one: one[1][::-1]):
        side = "left" if x <= WIDTH_PX / 2 else "right"
        shift, box = _first_free(x, y, taken, name=point["name"], side=side, height=height)
        taken.append(box)
        placed.append({**point, "side": side, "label_y": point["y"] - shift * unit if shift else point["y"]})
    return placed, height


def _first_free(x: float, y: float, taken: Sequence[Box], *, name: str, side: str, height: float) -> tuple[float, Box]:
    """Return how far below its point a name has room, the nearest place first; at the point if it has none."""
    for shift in (0.0, *(sign * step for step in range(LINE_PX, int(height), LINE_PX // 2) for sign in (1, -1))):
        box = _box(x, y + shift, name=name, side=side)
        if 0 <= y + shift <= height - 2 * PADDING_PX and not any(_touch(box, one) for one in taken):
            return float(shift), box
    return 0.0, _box(x, y, name=name, side=side)


def _range(points: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float]:
    """Return the least value and the width of the range, 1 where there is none."""
    values = [float(point[name]) for point in points] or [0.0]
    return min(values), (max(values) - min(values)) or 1.0


def _box(x: float, y: float, *, name: str, side: str) -> Box:
    near, far = GAP_PX, GAP_PX + min(LABEL_PX, LETTER_PX * len(name))
    ends = (x + near, x + far) if side == "left" else (x - far, x - near)
    return (*ends, y - LINE_PX / 2, y + LINE_PX / 2)


def _touch(a: Box, b: Box) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
