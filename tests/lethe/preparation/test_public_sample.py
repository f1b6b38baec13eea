"""How many images the public sample has, and that its parts share none."""

import numpy as np
import pytest

from lethe.preparation.public_sample import _parts


@pytest.mark.parametrize(
    ("validation", "asked", "expected"),
    [(180, None, 180), (400, None, 256), (3000, None, 1500), (9000, None, 2048), (9000, 4000, 4000), (100, 4000, 100)],
)
def test_the_sample_grows_with_the_split(validation: int, asked: int | None, expected: int) -> None:
    parts = _parts(np.arange(validation), 1, n_images=asked)
    assert len(np.unique(np.concatenate(list(parts.values())))) == sum(map(len, parts.values())) == expected
