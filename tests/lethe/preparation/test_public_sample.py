"""How many images the public sample has, and that its parts share none."""

import numpy as np
import pytest

from lethe.data.errors import InvalidSplit
from lethe.preparation.public_sample import sample_parts
from tests.lethe.conftest import MakeCompetition


@pytest.mark.parametrize(
    ("validation", "asked", "expected"),
    [(180, None, 180), (400, None, 256), (3000, None, 1500), (9000, None, 2048), (9000, 4000, 4000), (100, 4000, 100)],
)
def test_the_sample_grows_with_the_split(validation, asked, expected, make_competition):
    splits = {} if asked is None else {"sample_images": asked}
    parts = sample_parts(np.arange(validation), make_competition(splits=splits))
    assert len(np.unique(np.concatenate(list(parts.values())))) == sum(map(len, parts.values())) == expected


def test_a_validation_set_too_small_for_a_sample_is_named(make_competition: MakeCompetition) -> None:
    with pytest.raises(InvalidSplit, match=r"raise splits.validation_fraction"):
        sample_parts(np.arange(2), make_competition())
