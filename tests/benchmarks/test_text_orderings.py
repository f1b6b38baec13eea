"""What TOFU reports of methods, on made-up results that hold and that fail; and their figure."""

import math

import pytest

from benchmarks.papers.orderings import check_orderings
from lethe.reports.benchmark_figures import as_svg, draw, fitting_kinds

EPOCHS = {"ga, 1 epoch": 1, "ga, 5 epochs": 5}
METHODS = [{"name": name, "id": "ga", "constants": {"EPOCHS": n}} for name, n in EPOCHS.items()] + [
    {"name": "graddiff", "id": "graddiff", "constants": {"EPOCHS": 5}},
    {"name": "kl_min", "id": "kl_min", "constants": {"EPOCHS": 5}},
    {"name": "random network", "id": None, "constants": {}},
]
GOOD = {
    "original model": (1e-6, 0.8),
    "exact retraining": (0.8, 0.7),
    "ga, 1 epoch": (1e-5, 0.7),
    "ga, 5 epochs": (0.2, 0.05),
    "graddiff": (0.1, 0.5),
    "kl_min": (0.03, 0.2),
    "random network": (1e-4, 0.01),
}


def results(*, text=True, whole=False, **changed):
    """Return a benchmark's results. changed: row, with underscores for blanks -> its (p, utility), or None."""
    given = GOOD | {name.replace("_", " ").replace("kl min", "kl_min"): found for name, found in changed.items()}
    rows = {
        name: {
            "values": _values(*found, whole=whole) if text else {"f": {"value": 0.1}},
            "tables": {"forget_quality": {"p": 0.37 * found[0], "median_p": found[0]}} if text else {},
        }
        for name, found in given.items()
        if found is not None
    }
    settings = {"splits": {"forget": {"by": "person"}}}
    return {
        "cells": {"tofu": {"rows": rows, "settings": settings}},
        "methods": METHODS,
        "metrics": [{"id": "forget_quality", "parameters": {}}] if text else [],
        "tables": {"pareto": ["retdev", "rte"]},
        "n_models": 4,
    }


def _values(p, utility, *, whole):
    name, other = ("model_utility", "retain_utility") if whole else ("retain_utility", "model_utility")
    return {"forget_quality": {"value": math.log10(p)}, name: {"value": utility}, other: {"value": None}}


def found(content):
    return {each.statement: each for each in check_orderings(content) if each.id in ("E-13", "E-14")}


@pytest.mark.parametrize("whole", [True, False])
def test_all_hold(whole):
    rows = found(results(whole=whole))
    assert len(rows) == 7
    assert all(each.holds for each in rows.values())
    assert [each.hard for each in rows.values()].count(True) == 3


@pytest.mark.parametrize(
    ("changed", "statement"),
    [
        ({"original_model": (0.002, 0.8)}, "the original's forget quality has a median p below 0.001"),
        ({"exact_retraining": (0.4, 0.7)}, "retrained against retrained models have a median p above 0.5"),
        ({"random_network": (1e-4, 0.2)}, "a network of random weights has a model utility below 0.1"),
        ({"kl_min": (1e-7, 0.2)}, "kl_min raises forget quality and halves model utility"),
        ({"kl_min": (0.03, 0.5)}, "kl_min raises forget quality and halves model utility"),
        ({"graddiff": (0.1, 0.04)}, "graddiff keeps at least the model utility of ga"),
    ],
)
def test_one_fails(changed, statement):
    rows = found(results(**changed))
    assert [name for name, each in rows.items() if each.holds is False] == [statement]


def test_gibberish_that_does_not_pass():
    content = results()
    content["cells"]["tofu"]["rows"]["ga, 5 epochs"]["values"]["forget_quality"]["value"] = -1.4
    gibberish = next(each for each in found(content).values() if each.id == "E-14")
    assert gibberish.holds is False
    assert gibberish.numbers == "ga, 5 epochs log10 p -1.40, random network log10 p -4.00"


def test_what_is_missing_is_undecided():
    rows = found(results(random_network=None, graddiff=None, kl_min=None))
    undecided = [name for name, each in rows.items() if each.holds is None]
    assert len(undecided) == 3
    assert rows["a network of random weights has a model utility below 0.1"].numbers == "no row 'random network'"


def test_cells_of_images_have_no_such_statements():
    assert found(results(text=False)) == {}


def test_the_figure_joins_the_epochs_of_a_method():
    axes = draw(results(), "utility").axes[0]
    line = next(line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_linestyle() == "-")
    assert list(line.get_xdata()) == [0.7, 0.05]
    assert list(line.get_ydata()) == pytest.approx([-5, math.log10(0.2)])
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {
        "ga", "graddiff", "kl_min", "random network", "exact retraining", "original model",
    }  # fmt: skip


def test_no_two_of_many_methods_look_alike_in_the_figure():
    names = [f"own {number}" for number in range(23)]
    content = results() | {"methods": METHODS + [{"name": name, "id": None, "constants": {}} for name in names]}
    content["cells"]["tofu"]["rows"] |= {name: {"values": _values(0.1, 0.3, whole=False)} for name in names}
    drawn = draw(content, "utility").axes[0].collections
    looks = [(tuple(each.get_facecolor()[0]), each.get_paths()[0].vertices.tobytes()) for each in drawn]
    assert len(set(looks)) == len(drawn) == 29


def test_the_figure_is_for_language_models_alone():
    assert "utility" in fitting_kinds(results())
    assert "utility" not in fitting_kinds(results(text=False))
    assert "no forget quality is stored" in as_svg(draw(results(text=False), "utility"))
