"""The golden values of language models, recomputed from their inputs."""

from pathlib import Path

import pytest

from tests.golden.check import compare_file
from tests.golden.text_sets import TEXT_SETS

LAB = Path(__file__).parent / "lab"


@pytest.mark.parametrize("name", TEXT_SETS)
def test_text_set_agrees_with_the_published_values(name: str) -> None:
    comparisons = list(compare_file(LAB / f"{name}.npz"))
    assert any(line.within for line in comparisons)
    assert [line for line in comparisons if line.within is False] == []
