"""New metric: a case worked by hand."""

import numpy as np
import pytest

from lethe.cli.templates.new_metric import new_metric


def test_new_metric_is_the_mean_distance() -> None:
    found = new_metric(np.array([[1.0, 4.0], [3.0, 4.0]]), np.array([[0.0, 5.0]]))
    assert found.value == pytest.approx(1.5)  # (|2 - 0| + |4 - 5|) / 2
    assert found.per_example == pytest.approx([2.0, 1.0])


def test_new_metric_of_equal_models_is_ideal() -> None:
    models = np.arange(6.0).reshape(3, 2)
    assert new_metric(models, models).value == 0.0
