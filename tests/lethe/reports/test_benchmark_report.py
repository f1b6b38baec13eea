"""Tables, figures, report and orderings of a benchmark that was run."""

import json

import pytest

from benchmarks.papers.orderings import check_orderings
from lethe.benchmark.plan import read_plan
from lethe.benchmark.results import benchmark_results, collect, read_results
from lethe.benchmark.store import BenchmarkFolder
from lethe.errors import InvalidInput
from lethe.reports.benchmark_figures import KINDS, as_svg, draw
from lethe.reports.benchmark_page import report_page
from lethe.reports.benchmark_tables import benchmark_tables
from tests.lethe.benchmark.conftest import finished  # noqa: F401  a fixture of another folder

FINETUNE = "finetune LR=0.05"


@pytest.fixture(scope="module")
def content(finished):  # noqa: F811
    path, out = finished
    return collect(read_plan(path), BenchmarkFolder(out))


def test_a_failed_method_is_f_in_the_table(content):
    table = next(iter(benchmark_tables(content)))
    rows = {row[0]: table.shown(row)[1:] for row in table.rows}
    assert set(rows["broken"]) == {"F"}
    assert "F" not in rows[FINETUNE]
    assert list(rows) == ["original", FINETUNE, "broken", "exact retraining", "original model"]


def test_returning_the_original_scores_as_the_original(content):
    results = benchmark_results(content)
    places = [results.methods.index(name) for name in ("original", "original model")]
    for name in ("f", "retdev", "indiscernibility", "accuracy_gap"):
        a, b = results.metric(name)[0][places]
        assert a == pytest.approx(b, abs=1e-12)


def test_a_missing_method_is_a_dash(content):
    cut = json.loads(json.dumps(content))
    del next(iter(cut["cells"].values()))["rows"][FINETUNE]
    table = next(iter(benchmark_tables(cut)))
    assert set(table.shown(table.rows[1])[1:]) == {"—"}


def test_a_report_holds_its_own_results(content, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report_page(content | {"slug": "</script>"}), encoding="utf-8")
    assert read_results(path)["cells"] == content["cells"]
    assert read_results(path)["slug"] == "</script>"


def test_a_report_loads_nothing(content):
    page = report_page(content)
    assert "<svg" in page
    assert not any(text in page for text in ("<link", "src=", "@import", "url(http"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_names_the_cell(content, kind):
    assert as_svg(draw(content, kind)).startswith("<svg")


def test_an_unknown_figure_is_refused(content):
    with pytest.raises(InvalidInput, match="no plot 'pie'; there are pareto"):
        draw(content, "pie")


def test_what_is_no_report_is_refused(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<html></html>")
    with pytest.raises(InvalidInput, match="is not a report of a benchmark"):
        read_results(path)


def with_values(content, **values):
    """Return the results with F of some rows replaced."""
    changed = json.loads(json.dumps(content))
    rows = next(iter(changed["cells"].values()))["rows"]
    for row in rows.values():  # without an interval nothing is decided
        if "f" in row.get("values", {}):
            row["values"]["f"] |= {"interval": [row["values"]["f"]["value"]] * 2}
    for name, f in values.items():
        rows[name.replace("_", " ")]["values"]["f"] |= {"value": f, "interval": [f, f]}
    return changed


@pytest.mark.parametrize(("oracle", "holds"), [(0.9, True), (0.0, False)])
def test_an_ordering_follows_the_numbers(content, oracle, holds):
    changed = with_values(content, exact_retraining=oracle, original=0.1, original_model=0.0)
    found = {each.statement: each for each in check_orderings(changed)}
    assert found["F of the original is at most 0.01"].holds
    assert found["exact retraining has a higher F than every method"].holds is holds


def test_what_cannot_be_decided_says_why(content):
    undecided = {each.id: each.numbers for each in check_orderings(content) if each.holds is None}
    assert undecided["E-27"] == "klom and f of four methods are needed"
