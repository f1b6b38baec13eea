"""Charts of epsilons, by Vega-Lite."""

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
