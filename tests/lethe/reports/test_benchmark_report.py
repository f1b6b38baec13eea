"""Tables, figures, report and orderings of a benchmark that was run."""

import json
from copy import deepcopy

import numpy as np
import pytest

from benchmarks.papers.orderings import check_orderings
from lethe.benchmark.plan import read_plan
from lethe.benchmark.results import benchmark_results, collect, read_results
from lethe.benchmark.store import BenchmarkFolder
from lethe.errors import InvalidInput
from lethe.reports.benchmark_figures import KINDS, as_svg, draw, fitting_kinds
from lethe.reports.benchmark_tables import benchmark_tables
from lethe.reports.published_page import report_page

FINETUNE = "finetune LR=0.05"


@pytest.fixture(scope="module")
def content(finished):
    path, out = finished
    return collect(read_plan(path), BenchmarkFolder(out))


def test_a_failed_method_is_f_and_a_missing_one_a_dash_in_the_table(content):
    table = next(iter(benchmark_tables(content)))
    rows = {row[0]: table.shown(row)[1:] for row in table.rows}
    assert set(rows["broken"]) == {"F"}
    assert "F" not in rows[FINETUNE]
    assert list(rows) == ["original", FINETUNE, "broken", "exact retraining", "original model"]
    cut = deepcopy(content)
    del next(iter(cut["cells"].values()))["rows"][FINETUNE]
    table = next(iter(benchmark_tables(cut)))
    assert set(table.shown(table.rows[1])[1:]) == {"—"}, "a missing method"


def test_returning_the_original_scores_as_the_original(content):
    results = benchmark_results(content)
    places = [results.methods.index(name) for name in ("original", "original model")]
    for name in ("f", "retdev", "indiscernibility", "accuracy_gap"):
        a, b = results.metric(name)[0][places]
        assert a == pytest.approx(b, abs=1e-12)


def test_a_report_holds_its_own_results(content, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report_page(content | {"slug": "</script>"}), encoding="utf-8")
    assert read_results(path)["cells"] == content["cells"]
    assert read_results(path)["slug"] == "</script>"
    page = path.read_text()
    assert "<svg" in page
    assert not any(text in page for text in ("<link", "src=", "@import", "url(http")), "it loads nothing"
    path.write_text("<html></html>")
    with pytest.raises(InvalidInput, match="is not a report of a benchmark"):
        read_results(path)


def test_every_figure_is_drawn_and_an_unknown_one_is_refused(content):
    assert all(as_svg(draw(content, kind)).startswith("<svg") for kind in KINDS)
    with pytest.raises(InvalidInput, match="no plot 'pie'; there are pareto"):
        draw(content, "pie")
    assert not {"ranks", "tuned", "utility"} & set(fitting_kinds(content))


@pytest.fixture
def two_splits(content):
    """The same cell on a second split, with every method tuned there: from 0.1 to 0.2 and so on."""
    found = deepcopy(content)
    name, cell = next(iter(found["cells"].items()))
    rows = cell["rows"]
    for number, row in enumerate(rows.values()):
        fresh = {"own_fresh": 0.1 * number, "fresh": 0.1 * number + 0.1, "objective": "f"}
        row["tuning"] = {"state": "tuned", **fresh}
    other = deepcopy(cell)
    other["settings"]["splits"]["seed"] = 99
    found["cells"] = {name: cell, "other split": other}
    return found


def labels(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_ranks_over_splits_are_drawn_once_a_task_best_first(two_splits):
    (axes,) = draw(two_splits, "ranks").axes
    results = benchmark_results(two_splits)
    of_f = dict(zip(results.methods, results.metric("f")[0], strict=True))
    assert set(labels(axes)) == {name for name, value in of_f.items() if value == value} - set(results.references)
    assert [of_f[name] for name in labels(axes)] == sorted((of_f[name] for name in labels(axes)), reverse=True)
    assert axes.get_title() == ", ".join(two_splits["cells"])


def test_tuned_methods_are_drawn_with_both_of_their_scores(two_splits):
    (axes,) = draw(two_splits, "tuned").axes
    own, chosen = (list(line.get_xdata()) for line in axes.lines)
    assert chosen == sorted(chosen, reverse=True)
    assert np.subtract(chosen, own) == pytest.approx([0.1] * len(chosen))
    assert {"ranks", "tuned"} <= set(fitting_kinds(two_splits))


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
    undecided = {each.id: each.numbers for each in check_orderings(content) if each.holds is None}
    assert undecided["E-27"] == "klom and f of four methods are needed"
