"""Write docs/metrics/index.md, the table of all metrics, from the registry: `python -m scripts.metric_pages`."""

from pathlib import Path

from lethe.metrics import Metric, metrics
from scripts.wrapped import wrapped

PAGE = Path(__file__).parents[1] / "docs" / "metrics" / "index.md"
HEAD = """\
# Metrics

For those who choose what to measure: every metric with its formula, its source and how to read it. `lethe metrics ID`
prints all of one: its arrays, parameters, interval, and where paper and code differ. `lethe evaluate -m ID` computes it
([Python](../developers/python.md)). Levels: what must be captured of a run
([what a level costs](../organisers/metrics.md)).

| id | metric | formula | unit, better | level | source |
|---|---|---|---|---|---|
"""


def page(entries: list[Metric]) -> str:
    """Return the page, in Markdown."""
    return wrapped(HEAD + "".join(f"| {' | '.join(map(_cell, _row(entry)))} |\n" for entry in entries))


def _row(entry: Metric) -> tuple[str, ...]:
    formula = entry.formula if "`" in entry.formula else f"`{entry.formula}`"
    return (
        f"`{entry.id}`",
        entry.title,
        formula,
        f"{entry.unit}, {entry.direction}",
        f"{int(entry.level)}",
        entry.source,
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    PAGE.write_text(page(list(metrics().values())), encoding="utf-8")


if __name__ == "__main__":
    main()
