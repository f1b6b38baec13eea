"""Seeds depend on the run's own, if they are mixed; each case in a process of its own, because modules are changed."""

import json
from functools import lru_cache

import pytest
import torch

from lethe.runtime.entry import seed_everything
from tests.support.forked_children import run_code

# Each case is a fork, so that torch is imported once.
DRAWS = """
import json, os, random, sys
import numpy as np, torch
from lethe.runtime.randomness import Randomness

def draw(mixes, seed, pin):
    torch.manual_seed(seed); np.random.seed(seed); random.seed(seed)
    chance = Randomness(seed=seed, mixes=mixes == 1, can_pin=pin)
    if mixes >= 0:
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
    found["chance"] = np.random.default_rng().random() if mixes >= 0 else 0
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(np.random.mtrand._rand, np.random.RandomState)
    assert torch.utils.data.random_split(range(4), [2, 2], generator=made[1])
    print(json.dumps(found), flush=True)

for case in json.load(sys.stdin):
    if (child := os.fork()) == 0:
        draw(*case)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, case
"""
# whether seeds are mixed (-1: without any of this), the run's seed, whether to pin
CASES = [
    (-1, 1, False),
    (0, 1, False),
    (1, 1, False),
    (0, 2, False),
    (1, 2, False),
    *((mixes, seed, True) for mixes in (0, 1) for seed in (1, 3, 4)),
]


@lru_cache
def all_draws(attempt: int = 0) -> dict[tuple[int, int, bool], dict[str, float]]:
    """Return what each case draws. attempt: again, in other processes, for another number."""
    lines = run_code(DRAWS, standard_input=json.dumps(CASES)).splitlines()
    return dict(zip(CASES, map(json.loads, lines), strict=True))


def draws(mixes: int, *, seed: int = 1, pin: bool = False) -> dict[str, float]:
    return all_draws()[mixes, seed, pin]


def test_unmixed_seeds_draw_what_the_program_would_draw_by_itself() -> None:
    plain, first, other = draws(-1), draws(0), draws(0, seed=2)
    assert plain | {"chance": first["chance"]} == first
    assert plain | {name: other[name] for name in ("chance", "first")} == other
    assert first["chance"] != other["chance"]


def test_mixed_seeds_draw_something_else_in_each_run() -> None:
    plain, first, second = draws(0), draws(1), draws(1, seed=2)
    assert all_draws(attempt=1)[1, 1, False] == first
    for one, other in ((plain, first), (first, second)):
        equal = {name for name in one if one[name] == other[name]}
        assert equal <= {"first", "chance"}  # drawn from what was seeded before; left to chance


@pytest.mark.parametrize("mixes", [0, 1])
def test_pinned_generators_draw_the_same_whatever_was_drawn_before(mixes: int) -> None:
    assert draws(mixes, pin=True, seed=3) == draws(mixes, pin=True, seed=4)
    assert draws(mixes, pin=True) == draws(1 - mixes, pin=True)


def test_accelerators_are_seeded_where_another_device_than_the_processor_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    seed_everything(3)
    seed_everything(4, device="cuda")
    seed_everything(5, device="cpu")
    assert (seeded, torch.initial_seed()) == ([3, 4], 5)
