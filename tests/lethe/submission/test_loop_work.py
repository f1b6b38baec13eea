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
def evaluate(net, loader, conf=None):
    tot, meter = torch.zeros(1), Meter()
    for b in loader:
        b.clamp_(0, 1)
        tot.add_((net(b).argmax(1) == b).sum())
        conf.index_add_(0, b, b)
        meter.step(); bar.update(); df.apply(len)
    return tot
class Meter:
    def step(self):
        self.total.add_(1)
def zero(model): blank(model.fc)
def blank(layer): layer.weight.data.zero_()
def shift(ws):
    for w in ws: w.data += 1
def walk(net, opt): opt.step()
class Mender:
    def __init__(self, net): self.kept = net
    def fit(self): self.kept.fc.weight.zero_()
import copy, json, logging, pickle, sys, tqdm
import numpy as np, matplotlib.pyplot as plt, safetensors.torch
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
        (f"{CALL}\nnet.fc.weight = w", "net.fc.weight"),
        (f"{CALL}\nnet.fc = None", "net.fc"),
        (f"{CALL}\nfor m in net.modules(): m.reset_parameters()", "m.reset_parameters()"),
        (f"{CALL}\nfor p in net.parameters(): p.data *= 0.9", "p.data"),
        (f"{CALL}\nw = net.fc.weight.data; w.zero_()", "w.zero_()"),
        (f"{CALL}\nnn.init.zeros_(net.fc.weight)", "nn.init.zeros_(net.fc.weight)"),
        (f"{CALL}\n[p.data.zero_() for p in net.parameters()]", "p.data.zero_()"),
        (f"{CALL}\nzero(net)", "zero(net)"),
        (f"{CALL}\nshift(net.parameters())", "shift(net.parameters())"),
        (f"{CALL}\nwalk(net, o)", "walk(net, o)"),
        (f"{CALL}\nMender(net).fit()", "Mender(net)"),
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
    "line",
    [
        "logging.info(f'acc {accuracy(net, v)}')",
        "tqdm.tqdm.write(str(accuracy(net, v)))",
        "sys.stdout.write(f'{accuracy(net, v)}')",
        "json.dump({'acc': accuracy(net, v)}, file)",
        "np.save('x.npy', evaluate(net, v))",
        "plt.plot(evaluate(net, v, conf=c))",
        "pickle.dump(net.state_dict(), file)",
        "safetensors.torch.save_file(net.state_dict(), 'x')",
        "torch.nn.functional.relu_(net(x))",
        "net = copy.deepcopy(out)",
        "tot.add_(1)",
        "probs.copy_(net(x))",
        "net.name = 'a'",
        "net.name = f'run {i}'",
        "net.training = True",
        "net.requires_grad_(True)",
        "for p in net.parameters(): p.data = p.data.half()",
        "for p in net.parameters(): p.grad = None",
        "norms = [p.norm() for p in net.parameters()]; norms[0] = 1",
    ],
)
def test_measuring_logging_and_saving_is_the_loops_own(line: str) -> None:
    assert not without_own_loop(cells_of(f"out = {CALL}\n{line}"), "unlearning").cells[2].strip()


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
