"""What the pages of tuned methods say of their order is what their results say."""

from itertools import combinations
from pathlib import Path

import pytest

from lethe.benchmark.finished_cells import read_cells
from lethe.reports.split_sentences import agreement_sentence, page_sentences, ranked_of

PAGES = Path(__file__).parents[2] / "docs" / "benchmarks"
NAMES = ("fashion-tuned", "writers-tuned", "classes-tuned")


def words(name):
    """Return a page's text on one line."""
    return " ".join((PAGES / f"{name}.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize("name", NAMES)
def test_page_quotes_its_results(name):
    for sentence in page_sentences(read_cells(PAGES / name)):
        assert sentence in words(name)


@pytest.mark.parametrize("name", NAMES)
def test_table_of_the_page_is_that_of_its_results(name):
    ranked = ranked_of(read_cells(PAGES / name), "f")
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1:3] for row in text.partition("F, mean")[2].partition("\n\n")[0].splitlines()]
    shown = {cells[0].strip().strip("`"): cells[1].strip() for cells in rows if len(cells) == 2}
    for method, mean in zip(ranked.methods, ranked.found.mean, strict=True):
        assert shown[method] == f"{mean:.3f}"


def test_taus_between_tables_are_those_of_their_results():
    contents = {name: read_cells(PAGES / name) for name in NAMES}
    for first, second in combinations(NAMES, 2):
        sentence = agreement_sentence(contents[first], contents[second], "f")
        assert sentence in words(second)
        assert sentence in words("README")
