"""One BLAS thread for small fits; several models at once in the order of the models."""

import time
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from lethe.metrics.attacks import scalar_attack
from lethe.metrics.core.compiled import in_threads, slices
from lethe.metrics.membership import umia


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize(
    ("module", "function"), [(scalar_attack, partial(umia.forget_test_attack, n_splits=2, seed=0)), (umia, umia.hits)]
)
def test_small_fits_have_one_blas_thread(module, function, monkeypatch):
    seen, fit = [], scalar_attack.fit_lbfgs

    def recorded(*args):
        seen.append(blas_threads())
        return fit(*args)

    monkeypatch.setattr(module, "fit_lbfgs", recorded)
    losses = np.random.default_rng(0).exponential(size=(2, 20))
    with threadpool_limits(limits=2, user_api="blas"):
        function(losses, 2.0 * losses)
        assert blas_threads() == {2}
    assert seen
    assert all(threads == {1} for threads in seen)


def test_results_are_in_the_order_of_the_models():
    def slow(model):
        time.sleep(0.02 / (model + 1))
        return model

    assert in_threads(slow, range(6)) == list(range(6))


def test_error_of_a_model_is_raised():
    def broken(model):
        raise ValueError(f"model {model}")

    with pytest.raises(ValueError, match="model 0"):
        in_threads(broken, range(3))


@pytest.mark.parametrize("size", [0, 1, 7, 512])
def test_slices_cover_every_row_once(size):
    parts = slices(size)
    assert [row for part in parts for row in range(size)[part]] == list(range(size))
    assert all(part.stop > part.start for part in parts)
