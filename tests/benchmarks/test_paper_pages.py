"""The pages of docs/benchmarks/papers are those of the results beside them."""

import json
from importlib import import_module

import numpy as np
import pytest

from benchmarks.papers.many_splits import half_width
from benchmarks.papers.paper_page import FOLDER, decided

RESULTS = sorted(FOLDER.glob("*.json"))


def test_every_page_has_its_result() -> None:
    assert len(RESULTS) >= 3
    assert {path.stem for path in RESULTS} == {path.stem for path in FOLDER.glob("*.md")}


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_page_is_that_of_its_result(path) -> None:
    module = import_module(f"benchmarks.papers.{path.stem}")
    assert path.with_suffix(".md").read_text(encoding="utf-8") == module.page(json.loads(path.read_text("utf-8")))


@pytest.mark.parametrize(
    ("interval", "word"), [((0.1, 0.2), "higher"), ((-0.2, -0.1), "lower"), ((-0.1, 0.1), "undecided")]
)
def test_interval_decides_by_its_sign(interval, word) -> None:
    assert decided(interval) == word


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    without = np.array([np.delete(values, i).mean() for i in range(4)])
    assert half_width(without) == pytest.approx(1.96 * values.std(ddof=1) / 2.0)
