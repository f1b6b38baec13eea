"""The page on the digits benchmark says what its committed results say."""

from pathlib import Path

import pytest

from benchmarks.papers.orderings import check_orderings
from lethe.benchmark.results import read_results
from lethe.reports.benchmark_tables import benchmark_tables

FOLDER = Path(__file__).parents[3] / "docs" / "benchmarks"
SHOWN = ("digits mlp", "digits mlp: metrics")


@pytest.fixture(scope="module")
def content():
    return read_results(FOLDER / "digits.json")


@pytest.fixture(scope="module")
def page():
    return (FOLDER / "digits.md").read_text("utf-8")


def test_page_has_the_tables_of_its_results(content, page):
    tables = {table.title: table.markdown() for table in benchmark_tables(content)}
    for title in SHOWN:
        rows = "\n".join(line for line in tables[title].splitlines() if line.startswith("|"))
        assert rows in page, title


def test_page_ranks_nothing_by_one_cell(content, page):
    (ranking,) = [table for table in benchmark_tables(content) if table.title.startswith("Rank")]
    assert str(ranking.rows[0][0]) in page


def test_page_names_every_ordering_that_is_decided(content, page):
    decided = [found for found in check_orderings(content) if found.holds is not None]
    words = {True: "yes", False: "**no**"}
    lines = [line for line in page.splitlines() if line.startswith("| E-")]
    assert [line.split(" | ")[:4] for line in lines] == [
        [f"| {found.id}", "hard" if found.hard else "soft", words[found.holds], found.cell] for found in decided
    ]


def test_results_are_those_of_the_benchmark_file(content):
    file = FOLDER.parents[1] / "examples" / "benchmarks" / "digits.toml"
    assert content["benchmark"] == file.read_text("utf-8")
