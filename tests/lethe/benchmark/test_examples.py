"""The benchmark files that come with Lethe."""

from pathlib import Path

import pytest

from lethe.benchmark.plan import read_plan

FILES = sorted((Path(__file__).parents[3] / "examples/benchmarks").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_valid(path):
    plan = read_plan(path)
    assert plan.file.slug == path.stem
    assert len({cell.key for cell in plan.cells}) == len(plan.cells)


def test_there_are_examples():
    assert {"digits", "confusion", "fashion", "faces", "neurips-2023", "deep-unlearn", "miau"} <= {
        path.stem for path in FILES
    }
