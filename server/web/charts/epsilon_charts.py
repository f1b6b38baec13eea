"""Pictures of epsilons: charts by Vega-Lite, and the drawing that explains the score."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from json import dumps
from math import ceil, exp, floor, inf, log
from statistics import NormalDist
from typing import Any

from server.web.charts.vega_charts import load_altair, sized


def epsilons(rows: list[dict[str, Any]], *, cap: float = 50.0, bins: int = 30) -> dict[str, Any]:
    """How the epsilons of the forget examples are spread. rows: value (nats), models (whose they are).

    cap: what an example has where no attack failed. Such examples stand in a bar of their own behind the others, which
    the axis would squeeze into a few bars otherwise.
    """
    alt = load_altair()
    bars, end = _epsilon_bars(rows, cap=cap, bins=bins)
    several = len({row["models"] for row in rows}) > 1
    axis = alt.Axis(format="~g", grid=False, values=[round(end * part / 5, 2) for part in range(6)])
    chart = (
        alt.Chart(alt.Data(values=bars))
        .mark_bar(opacity=0.62 if several else 0.9, binSpacing=1)
        .encode(
            x=alt.X("low:Q", bin="binned", title="epsilon, nats", axis=axis, scale=alt.Scale(domain=[0, end * 1.2])),
            x2="high:Q",
            y=alt.Y("examples:Q", stack=None, title="forget examples", axis=alt.Axis(tickCount=4, format="d")),
            tooltip=[alt.Tooltip("range:N", title="epsilon"), "examples:Q"],
        )
    )
    if several:
        chart = chart.encode(color=alt.Color("models:N", title=None, sort=None, legend=alt.Legend(orient="top")))
    if not any(row["value"] >= cap for row in rows):
        return sized(chart, height=190)
    named = {"at": end * 1.2, "text": f"{cap:.4g}, the cap"}
    label = (
        alt.Chart(alt.Data(values=[named]))
        .mark_text(align="right", baseline="bottom", dy=-4, fontSize=11)  # below the bar stand the axis's numbers
        .encode(x=alt.X("at:Q"), y=alt.value(0), text="text:N")
    )
    return sized(alt.layer(chart, label), height=190)


def epsilon_strips(rows: list[dict[str, Any]], *, clip: float) -> dict[str, Any]:
    """A strip for each method with a mark for each forget example. rows: name, example, value (nats, clipped)."""
    alt = load_altair()
    n_methods = len({row["name"] for row in rows})
    axis = alt.Axis(tickCount=5, format="~g")
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_tick(thickness=2, size=11, opacity=0.45)
        .encode(
            x=alt.X("value:Q", title=f"epsilon, nats, at most {clip:g}", scale=alt.Scale(domain=[0, clip]), axis=axis),
            y=alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=120)),
            tooltip=["name:N", alt.Tooltip("example:Q", title="forget example"), alt.Tooltip("value:Q", format=".3g")],
        )
    )
    return sized(chart, height=max(120, 20 * n_methods))


def _epsilon_bars(rows: list[dict[str, Any]], *, cap: float, bins: int) -> tuple[list[dict[str, Any]], float]:
    """Return bars of equal width up to the largest epsilon below the cap, the cap's own, and where the former end."""
    below = [row["value"] for row in rows if row["value"] < cap]
    end = max(below, default=1.0) * 1.0001 or 1.0
    width = end / bins
    counts: dict[tuple[str, int], int] = {}
    for row in rows:
        place = min(bins - 1, int(row["value"] / width)) if row["value"] < cap else bins
        counts[row["models"], place] = counts.get((row["models"], place), 0) + 1
    return [_epsilon_bar(*key, examples=n, width=width, bins=bins, cap=cap) for key, n in sorted(counts.items())], end


def _epsilon_bar(models: str, place: int, *, examples: int, width: float, bins: int, cap: float) -> dict[str, Any]:
    if place == bins:  # behind a gap
        text, low, high = f"no attack failed (the cap of {cap:.4g})", width * bins * 1.08, width * bins * 1.17
    else:
        low, high = place * width, (place + 1) * width
        text = f"{low:.2f} to {high:.2f}"
    return {"models": models, "low": low, "high": high, "range": text, "examples": examples}


MAX_SHIFT, STEPS = 3.0, 30  # in standard deviations
BUCKET = 0.5  # nats; as in lethe.metrics.scoring.epsilon, which needs more than the web server has
FLOOR = 0.02  # an error rate counts as no less; as in lethe.metrics.scoring.attacks.crossfit
FROM, TO = -3.5, 6.5  # of the axis, in standard deviations
WIDTH, BASE, TOP = 600, 150, 20  # of the drawing
SHOWN_FIRST = 10
MAX_DRAWN = 512  # models on each side


@dataclass(frozen=True)
class Separation:
    """How well one threshold tells two distributions apart. threshold_x: where it stands in the drawing."""

    shift: float
    epsilon: float
    points: float
    threshold_x: float

    @property
    def offset(self) -> float:
        """How far the moved curve stands from the other in the drawing."""
        return round(self.shift * WIDTH / (TO - FROM), 1)


@lru_cache(maxsize=64)
def separations(n_models: int, delta: float, lowest_rate: float = 0.0) -> tuple[Separation, ...]:
    """Return the picture at every step of the slider. Of more than 512 models on each side, 512 are drawn."""
    drawn = min(n_models, MAX_DRAWN)
    shifts = (MAX_SHIFT * step / STEPS for step in range(STEPS + 1))
    return tuple(separation(shift, drawn, delta=delta, lowest_rate=lowest_rate) for shift in shifts)


def as_json(shown: tuple[Separation, ...]) -> str:
    """Return what the slider's script shows at each step: offset, threshold, and epsilon and points as text."""
    return dumps([[one.offset, one.threshold_x, f"{one.epsilon:.2f}", f"{one.points:.3f}"] for one in shown])


def separation(shift: float, n_models: int, *, delta: float, lowest_rate: float = 0.0) -> Separation:
    """Return the largest epsilon over thresholds with both errors, whose rates count as `lowest_rate` at least."""
    normal = NormalDist()
    retrained = [normal.inv_cdf((index + 0.5) / n_models) for index in range(n_models)]
    unlearned = [value + shift for value in retrained]
    best, where = 0.0, shift / 2
    for threshold in (*retrained, *unlearned):
        wrongly_unlearned = max(1 - bisect_right(retrained, threshold) / n_models, lowest_rate)
        wrongly_retrained = max(bisect_right(unlearned, threshold) / n_models, lowest_rate)
        difference = max(
            _nats(wrongly_unlearned, wrongly_retrained, delta), _nats(wrongly_retrained, wrongly_unlearned, delta)
        )
        if difference > best + 1e-9:
            best, where = difference, threshold
    return Separation(shift, best, points(best, n_models), round(_x(where), 1))


def points(epsilon: float, n_models: int) -> float:
    """Return what one example earns: 1 below half a nat, half as much with each half nat more, nothing at the end."""
    bucket = floor(epsilon / BUCKET)
    return 2.0**-bucket if bucket < int(ceil(log(n_models - 1)) / BUCKET) else 0.0


@lru_cache
def curve() -> str:
    """Return the SVG path of the distribution that does not move."""
    xs = [FROM + (7.0 * step) / 70 for step in range(71)]
    line = "L".join(f"{_x(x):.0f} {BASE - (BASE - TOP) * exp(-x * x / 2):.1f}" for x in xs)
    return f"M{_x(xs[0]):.0f} {BASE}L{line}L{_x(xs[-1]):.0f} {BASE}Z"


def _x(value: float) -> float:
    return (value - FROM) / (TO - FROM) * WIDTH


def _nats(one: float, other: float, delta: float) -> float:
    return log((1 - delta - one) / other) if one > 0 and other > 0 and 1 - delta > one else -inf
