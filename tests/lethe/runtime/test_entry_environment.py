"""What code of entries finds: its run's seeds, torch as it was in 2023, a notebook's shell."""

import json
import subprocess
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch

from lethe.runtime.entry import seed_everything
from lethe.runtime.notebook_shell import system
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


HEAD = """
import inspect, os, tempfile
import torch
from torch.optim.lr_scheduler import *
from torch.optim.lr_scheduler import LRScheduler
from lethe.runtime import earlier_torch
earlier_torch.install()
earlier_torch.install()
net = torch.nn.Linear(1, 1)
sgd = torch.optim.SGD(net.parameters(), lr=1.0)
"""
OWN = """
class Warmup(LRScheduler):
    def __init__(self, optimizer, steps, last_epoch=-1, verbose=False):
        self.steps = steps
        super().__init__(optimizer, last_epoch, verbose)
    def get_lr(self):
        return [rate / self.steps for rate in self.base_lrs]
Warmup(sgd, 4)
assert sgd.param_groups[0]['lr'] == 0.25
"""
CODE_OF_2023 = {
    "plateau": "ReduceLROnPlateau(sgd, 'min', patience=1, verbose=True).step(1.0)",
    "cosine": "assert CosineAnnealingLR(sgd, 3, verbose=False).T_max == 3",
    "own": OWN,
    "a wrong argument": "try:\n    StepLR(sgd, 3, loud=1)\nexcept TypeError:\n    pass\nelse:\n    raise RuntimeError",
    "signature": "assert 'gamma' in inspect.signature(StepLR).parameters",
    "whole models": "path = tempfile.mktemp()\ntorch.save(net, path)\nassert torch.load(path).weight.shape == (1, 1)",
    "compile": "assert torch.compile(net, mode='max-autotune')(torch.ones(1)).shape == (1,)\n"
    "assert torch.compile(net).state_dict().keys() == net.state_dict().keys()",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """What each case raised, all of them in one process of its own."""
    code = f"""import warnings
warnings.simplefilter("ignore")
{HEAD}
import traceback, json
said = {{}}
for name, text in {CODE_OF_2023!r}.items():
    try:
        exec(text, globals())
    except Exception:
        said[name] = traceback.format_exc()
print(json.dumps(said))
"""
    found: dict[str, str] = json.loads(run_code(code).splitlines()[-1])
    return found


@pytest.mark.parametrize("case", CODE_OF_2023)
def test_code_of_2023_runs(case: str, outputs: dict[str, str]) -> None:
    assert outputs.get(case, "") == ""


@pytest.mark.parametrize("command", ["pip install -q timm", " pip3 install timm", "conda install x", "uv pip"])
def test_installers_are_skipped_as_on_the_server(command, capsys, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was run"))
    system(SimpleNamespace(user_ns={}), command)
    assert f"!{command.strip().partition(' ')[0]} was skipped: a run has no network" in capsys.readouterr().out


def test_other_commands_are_run(capfd: pytest.CaptureFixture[str]) -> None:
    system(SimpleNamespace(user_ns={}), "echo pipe installed")
    assert capfd.readouterr().out == "pipe installed\n"
