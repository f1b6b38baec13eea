"""One BLAS thread for small fits; several models at once in the order of the models."""

import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from lethe.metrics import consistent_unforgettability, loss_attack
from lethe.metrics.processors import map_models


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize(
    ("module", "function"),
    [(loss_attack, loss_attack.attack_accuracies), (consistent_unforgettability, consistent_unforgettability.hits)],
)
def test_small_fits_have_one_blas_thread(module, function, monkeypatch):
    seen, fit = [], loss_attack.fit_logistic

    def recorded(*args):
        seen.append(blas_threads())
        return fit(*args)

    monkeypatch.setattr(module, "fit_logistic", recorded)
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

    assert map_models(slow, range(6)) == list(range(6))


def test_error_of_a_model_is_raised():
    def broken(model):
        raise ValueError(f"model {model}")

    with pytest.raises(ValueError, match="model 0"):
        map_models(broken, range(3))
