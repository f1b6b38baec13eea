"""Write docs/metrics/<id>.md and docs/metrics/index.md from the registry: `python -m scripts.metric_pages`."""

from pathlib import Path

from lethe.metrics import Metric, metrics
from lethe.metrics.core.metric_text import metric_page
from scripts.wrapped import wrapped

FOLDER = Path(__file__).parents[1] / "docs" / "metrics"


def index_page(entries: list[Metric]) -> str:
    """Return the page that lists all metrics, in Markdown."""
    rows = [
        f"| [`{entry.id}`]({entry.id}.md) | {entry.title} | {entry.unit} | {entry.direction} | {int(entry.level)} |"
        for entry in entries
    ]
    return "\n".join(
        ["# Metrics", "", "| id | metric | unit | better | capture level |", "|---|---|---|---|---|", *rows, ""]
    )


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    entries = list(metrics().values())
    made = {"index.md": index_page(entries)} | {f"{entry.id}.md": metric_page(entry) for entry in entries}
    return {name: wrapped(text) for name, text in made.items()}


def main() -> None:
    """Write the pages, and remove those of metrics that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
