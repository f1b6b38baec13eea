"""Networks that fit their tiny training data."""

import copy

import pytest

from tests.lethe.methods.tiny_data import Problem, make_problem


@pytest.fixture(scope="session")
def trained_problems():
    recipes = {"mlp": (12, 0.003), "small_cnn": (20, 0.03), "resnet20": (4, 0.003)}
    return {kind: make_problem(kind, epochs=epochs, lr=lr) for kind, (epochs, lr) in recipes.items()}


@pytest.fixture
def trained(trained_problems):
    """Return a problem of this kind whose network may be changed."""

    def of(kind="mlp"):
        problem = trained_problems[kind]
        return Problem(copy.deepcopy(problem.net), *problem.data, problem.before)

    return of


class Unread:
    """A loader that must not be read."""

    batch_size = 16

    def __iter__(self):
        raise AssertionError("this set must not be read")


@pytest.fixture
def unread():
    return Unread()
