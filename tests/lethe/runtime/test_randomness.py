"""Seeds depend on the run, except in run 0; each case in a process of its own, because modules are changed."""

import json
import subprocess
import sys
from functools import lru_cache

import pytest

# Each case is a fork, so that torch is imported once.
DRAWS = """
import json, os, random, sys
import numpy as np, torch
from lethe.runtime.randomness import Randomness

def draw(run, seed, pin):
    torch.manual_seed(seed); np.random.seed(seed); random.seed(seed)
    chance = Randomness(run=run, seed=seed, can_pin=pin)
    if run >= 0:
        chance.install()
    made = np.random.default_rng(5), torch.Generator().manual_seed(6), np.random.RandomState(7), random.Random(8)
    if pin:
        [source.random() for source in made[::2]]
        chance.pin()
    found = {
        "default_rng": made[0].random(), "generator": torch.rand(1, generator=made[1]).item(),
        "state": made[2].rand(), "Random": made[3].random(), "first": torch.rand(1).item() + np.random.rand()
    }
    random.seed("text"); found["random"] = random.random()
    np.random.seed(3); found["numpy"] = np.random.rand()
    torch.manual_seed(4); found["torch"] = torch.rand(1).item()
    found["chance"] = np.random.default_rng().random() if run >= 0 else 0
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(np.random.mtrand._rand, np.random.RandomState)
    assert torch.utils.data.random_split(range(4), [2, 2], generator=made[1])
    print(json.dumps(found), flush=True)

for case in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        draw(*case)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, case
"""
# run (-1: without any of this), seed, whether to pin
CASES = [
    (-1, 1, False),
    (0, 1, False),
    (1, 1, False),
    (1, 2, False),
    *((r, s, True) for r in (0, 1) for s in (1, 3, 4)),
]


@lru_cache
def all_draws(attempt: int = 0) -> dict[tuple[int, int, bool], dict[str, float]]:
    """Return what each case draws. attempt: again, in other processes, for another number."""
    words = [sys.executable, "-c", DRAWS, json.dumps(CASES)]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(zip(CASES, map(json.loads, lines), strict=True))


def draws(run: int, *, seed: int = 1, pin: bool = False) -> dict[str, float]:
    return all_draws()[run, seed, pin]


def test_run_0_draws_what_the_program_would_draw_by_itself() -> None:
    plain, first = draws(-1), draws(0)
    assert plain | {"chance": first["chance"]} == first


def test_another_run_draws_something_else_each_time_the_same() -> None:
    first, second = draws(0), draws(1)
    assert all_draws(attempt=1)[1, 1, False] == second
    assert {name for name in first if first[name] == second[name]} == {"first", "chance"}  # of the run's own seed
    assert draws(1, seed=2)["chance"] != second["chance"]


@pytest.mark.parametrize("run", [0, 1])
def test_pinned_generators_draw_the_same_whatever_was_drawn_before(run: int) -> None:
    assert draws(run, pin=True, seed=3) == draws(run, pin=True, seed=4)
    assert draws(run, pin=True) == draws(1 - run, pin=True)
