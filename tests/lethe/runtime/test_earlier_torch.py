"""Code of 2023 finds torch as it was: schedulers take verbose, torch.load takes whole models, nothing is compiled."""

import json

import pytest

from tests.support.forked_children import run_code

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
CASES = {
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
for name, text in {CASES!r}.items():
    try:
        exec(text, globals())
    except Exception:
        said[name] = traceback.format_exc()
print(json.dumps(said))
"""
    found: dict[str, str] = json.loads(run_code(code).splitlines()[-1])
    return found


@pytest.mark.parametrize("case", CASES)
def test_code_of_2023_runs(case: str, outputs: dict[str, str]) -> None:
    assert outputs.get(case, "") == ""
