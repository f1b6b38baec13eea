"""What a notebook's own loop does beyond calling its function is bound or refused; it is never passed over."""

import json

import pytest

from lethe.submission.loop_work import LoopIsNeeded
from lethe.submission.notebook_slicing import without_own_loop
from lethe.submission.package import load_package

START = """\
import torch
from torch import nn
from torch.nn.utils import prune
from contextlib import contextmanager
def repair(net, loader):
    for batch in loader:
        net(batch).sum().backward()
def accuracy(net, loader):
    net.eval()
    return sum((net(batch).argmax(1) == batch).sum() for batch in loader)
@contextmanager
def frozen(net):
    for p in net.parameters():
        p.requires_grad_(False)
    yield
lr = 0.1
"""
FUNCTION = "def unlearning(net, r, f, v, epochs=1, *, lr=1.0, seed=None):\n    return epochs\n"
LOOP = """\
for i in range(512):
    net.load_state_dict(torch.load('o'))
    net.to(DEVICE); net.train(); torch.manual_seed(i)
    {call}
    print(accuracy(net, v))
    torch.save({{k: v.half() for k, v in net.state_dict().items()}}, f'u{{i}}.pth')
"""
CALL = "unlearning(net, r, f, v)"


def cells_of(lines: str) -> list[str]:
    """Return a notebook whose loop holds these lines in place of the call."""
    return [START, FUNCTION, LOOP.format(call=lines.replace("\n", "\n    "))]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (f"{CALL}\nrepair(net, r)", "repair(net, r)"),
        (f"repair(net, r)\n{CALL}", "repair(net, r)"),
        ("net = unlearning(net, r, f, v)\nnet = repair(net, r)", "repair(net, r)"),
        (f"{CALL}\n{CALL}", CALL),
        (f"{CALL}\nprune.l1_unstructured(net.fc, 'weight', 0.1)", "prune.l1_unstructured"),
        (f"{CALL}\nfor b in r:\n    net(b).sum().backward()", "net(b).sum().backward()"),
        (f"{CALL}\nfor p in net.parameters(): p.data.add_(0.1)", "p.data.add_(0.1)"),
        (f"net.fc = nn.Linear(2, 3)\n{CALL}", "net.fc"),
        (f"net.fc.reset_parameters()\n{CALL}", "net.fc.reset_parameters()"),
        (f"{CALL}\nsd = net.state_dict()\nfor k in sd: sd[k] = 0.5 * sd[k]", "sd[k]"),
        (f"with torch.autocast('cpu'):\n    {CALL}", "torch.autocast('cpu')"),
        (f"with frozen(net):\n    {CALL}", "frozen(net)"),
        (f"torch.set_default_dtype(torch.float64)\n{CALL}", "torch.set_default_dtype"),
    ],
)
def test_a_loop_that_does_more_to_the_model_is_refused(lines: str, named: str) -> None:
    with pytest.raises(LoopIsNeeded, match="here each run only calls unlearning") as caught:
        without_own_loop(cells_of(lines), "unlearning")
    assert named in str(caught.value)
    first = next(n for n, line in enumerate(lines.splitlines(), start=4) if named in line)
    assert (caught.value.place.cell, caught.value.place.first_line) == (3, first if lines.count(CALL) < 2 else 5)


def test_what_a_function_does_beside_the_call_is_refused_in_its_cell() -> None:
    main = "def main():\n    for i in range(512):\n        unlearning(net, r, f, v)\n        repair(net, r)\n"
    save = "        torch.save(net.state_dict(), f'u{i}.pth')\n"
    with pytest.raises(LoopIsNeeded) as caught:
        without_own_loop([START, FUNCTION, main + save, "main()\n"], "unlearning")
    assert (caught.value.place.cell, caught.value.place.first_line) == (3, 4)


@pytest.mark.parametrize(
    "lines",
    [
        CALL,
        f"try:\n    {CALL}\nexcept RuntimeError:\n    {CALL}",
        f"opt = torch.optim.SGD(net.parameters(), 1)\n{CALL}",
        f"{CALL}\nsd = net.state_dict()\nfor k in sd: sd[k] = sd[k].half()",
        "unlearning(net, r, f, v, epochs=1, seed=i)",  # its default, and what the server gives
    ],
)
def test_loading_casting_and_measuring_is_the_loops_own(lines: str) -> None:
    sliced = without_own_loop(cells_of(lines), "unlearning")
    assert not sliced.cells[2].strip()
    assert sliced.notes == ()


@pytest.mark.parametrize(
    ("call", "bound"),
    [
        ("unlearning(net, r, f, v, epochs=5)", "epochs=5"),
        ("unlearning(net, r, f, v, 5, lr=lr)", "epochs=5, lr=lr"),
        ("unlearning(net, *loaders, **dict(lr=lr))", "**dict(lr=lr)"),
    ],
)
def test_what_the_loop_passes_beyond_the_four_is_bound(call: str, bound: str) -> None:
    sliced = without_own_loop(cells_of(call), "unlearning")
    assert sliced.cells[2].strip() == f'unlearning = __import__("functools").partial(unlearning, {bound})'
    assert sliced.notes == (f"unlearning is called with {bound}, as in the notebook's loop",)


def test_a_value_of_the_loop_cannot_be_bound() -> None:
    cells = [{"cell_type": "code", "source": text} for text in cells_of("unlearning(net, r, f, v, epochs=i)")]
    with pytest.raises(Exception, match=r"n\.ipynb, cell 3, line 4: the loop passes `epochs=i`"):
        load_package(json.dumps({"cells": cells}).encode(), "n.ipynb")


def test_what_is_bound_is_made_though_it_follows_from_the_data() -> None:
    made = "import pandas as pd\nsteps = len(pd.read_csv('x'))\n"
    cells = without_own_loop([START, made, *cells_of("unlearning(net, r, f, v, epochs=steps)")[1:]], "unlearning").cells
    assert cells[1] == made
