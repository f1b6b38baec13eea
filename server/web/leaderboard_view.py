"""What the leaderboard page shows of a board: some lines of it, and all scores on one strip."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, log10

from markupsafe import Markup

from server.cost_cache import CostCache
from server.leaderboard.boards import Board
from server.leaderboard.ranking import Row, RowKind
from server.web.rendering import environment, score

LINES = 100
STRIP_WIDTH = 1000
STRIP_HEADROOM = 1.05
MAX_STRIPS = 64
MAX_MARKS = 200  # beyond it a mark for each team would be a smear
BINS = 50
MAX_KEPT = 4 << 20  # characters of pages of lines: every search makes its own


@dataclass(frozen=True)
class Strip:
    """Every score on one axis, 0..STRIP_WIDTH; `teams`, of a crowd its histogram, and `baselines` are SVG paths."""

    top: float
    teams: str
    is_histogram: bool
    baselines: str
    oracle: int | None
    own: int | None
    label: str


_fragments: CostCache[Markup] = CostCache(size=len, max_size=MAX_KEPT)
_strips: dict[int, Strip | None] = {}  # by version: a board does not change


def rows_html(
    board: Board,
    rows: tuple[Row, ...],
    *,
    number: int,
    next_url: str,
    own_team_id: str | None,
    moves: dict[str, int] | None,
    settings: Mapping[str, str] | None = None,
) -> Markup:
    """Return one page of lines, the same for every reader but the own one. settings: of reference lines."""
    lines = board_lines(rows, number)
    if not lines:
        return Markup("")
    key = (board.version, tuple(row.entry.team_id for row in lines), number, next_url)
    html = _fragments.get(key, lambda: _render(board, lines, next_url=next_url, moves=moves, settings=settings or {}))
    if own_team_id is None:
        return html
    mark = f'id="team-{own_team_id}"'
    return Markup(str(html).replace(mark, f'{mark} data-own aria-current="true"', 1))  # noqa: S704 (our own markup)


def _render(
    board: Board, lines: tuple[Row, ...], *, next_url: str, moves: dict[str, int] | None, settings: Mapping[str, str]
) -> Markup:
    template = environment().get_template("_board_rows.html")
    html = template.render(
        rows=lines,
        scale=board.interval_scale,
        oracle=board.oracle,
        columns=board.columns,
        next_url=next_url,
        moves=moves,
        settings=settings,
    )
    return Markup(html)  # noqa: S704 (rendered with autoescape)


def board_lines(rows: tuple[Row, ...], number: int) -> tuple[Row, ...]:
    """Return the rows of one page, from 1."""
    return rows[(number - 1) * LINES : number * LINES]


def count_pages(rows: tuple[Row, ...]) -> int:
    return max(1, ceil(len(rows) / LINES))


def page_with_team(board: Board, team_id: str) -> int:
    """Return the number of the page that holds the team's line."""
    return board.places[team_id] // LINES + 1


def make_strip(board: Board, own: Row | None) -> Strip | None:
    """Return the strip of a board, or None if there is nothing to compare."""
    strip = _strips.get(board.version)
    if strip is None:
        if len(_strips) >= MAX_STRIPS:
            _strips.clear()
        strip = _strips[board.version] = _strip(board)
    if strip is None or own is None:
        return strip
    return replace(strip, own=_position(own.entry.score or 0.0, top=strip.top))


def _strip(board: Board) -> Strip | None:
    scores = [row.entry.score or 0.0 for row in board.rows]
    if len(scores) < 2 or max(scores) <= 0:
        return None
    top = max(scores) * STRIP_HEADROOM
    best = max((row.entry.score or 0.0 for row in board.rows if row.rank), default=0.0)
    is_crowd = board.teams > MAX_MARKS
    beside = f", the oracle {score(board.oracle)}" if board.oracle is not None else ""
    return Strip(
        top=top,
        teams=_bars(board, top=top) if is_crowd else _marks(board, RowKind.TEAM, top=top, y=18, height=12),
        is_histogram=is_crowd,
        baselines=_marks(board, RowKind.BASELINE, top=top, y=10, height=26),
        oracle=_position(board.oracle, top=top) if board.oracle is not None else None,
        own=None,
        label=f"Scores of {board.teams} teams: best {score(best)}{beside}",
    )


def _marks(board: Board, kind: RowKind, *, top: float, y: int, height: int) -> str:
    """Return an SVG path with a mark at every score of that kind; of those that fall together, one."""
    places = {_position(row.entry.score or 0.0, top=top) for row in board.rows if row.entry.kind is kind}
    return "".join(f"M{place} {y}v{height}" for place in sorted(places))


def _bars(board: Board, *, top: float) -> str:
    """Return an SVG path of bars: how many teams have a score in each part of the axis, the tallest 28 high."""
    counted = Counter(
        min(int((row.entry.score or 0.0) / top * BINS), BINS - 1)
        for row in board.rows
        if row.entry.kind is RowKind.TEAM
    )
    tallest, width = max(counted.values()), STRIP_WIDTH / BINS
    bars = ((place * width + 1, 28 * number / tallest) for place, number in sorted(counted.items()))
    return "".join(f"M{x:.1f} 30v-{height:.1f}h{width - 2:.1f}v{height:.1f}Z" for x, height in bars)


def axis_ticks(end: float) -> list[tuple[float, str]]:
    """Return where an axis from 0 to `end` is labelled, per cent of it, and the labels: round numbers, four at most."""
    rough = end / 4
    size = 10.0 ** floor(log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough)
    return [(round(100 * place * step / end, 1), f"{place * step:.6g}") for place in range(int(end / step) + 1)]


def _position(value: float, *, top: float) -> int:
    return round(max(0.0, value) / top * STRIP_WIDTH)
