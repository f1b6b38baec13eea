"""Of a notebook, a function keeps what it needs and loses the loop around it."""

import io
import time
import zipfile

import pytest

from lethe.submission.gpu_guards import without_gpu_guards
from lethe.submission.loop_work import LoopIsNeeded
from lethe.submission.notebook_slicing import without_own_loop
from lethe.submission.package import load_package

IMPORTS = """\
import json, random
import torch
import pandas as pd
from torch import nn
random.seed(0)
torch.manual_seed(42)
torch.backends.cudnn.benchmark = True
"""
SETTINGS = """\
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'
if DEVICE != 'cuda':
    raise RuntimeError('no accelerator')
config = {'lr': 0.1}
config['epochs'] = 2
config.update(momentum=0.9)
with open('/kaggle/input/x/weights.json') as f:
    weights = json.load(f)
frame = pd.read_csv('/kaggle/input/x/retain.csv')
"""
FUNCTION = """\
def step(net, batch):
    return nn.functional.cross_entropy(net(batch['image'].to(DEVICE)), batch['age_group'])

def unlearning(net, retain_loader, forget_loader, val_loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=config['lr'])
    for batch in retain_loader:
        step(net, batch).backward()
"""
LOOP = """\
retain_loader, forget_loader, val_loader = get_loaders()
net = resnet18()
for i in range(512):
    unlearning(net, retain_loader, forget_loader, val_loader)
    torch.save(net.state_dict(), f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')
"""
CELLS = [IMPORTS, SETTINGS, FUNCTION, LOOP]


LEFT_OUT = without_own_loop(CELLS, "unlearning").left_out
NEEDS = "def unlearning(net, r, f, v):\n    return cw, config\n"
START = "cw = [0, 0]\nconfig = {}\n"


def sliced(*cells: str) -> list[str]:
    return without_own_loop(cells or CELLS, "unlearning").cells


def test_line_numbers_stay() -> None:
    assert [cell.count("\n") for cell in sliced()] == [cell.count("\n") for cell in CELLS]


def test_the_function_and_what_it_calls_stay() -> None:
    assert sliced()[2] == FUNCTION


def test_the_loop_and_its_data_and_the_guard_go() -> None:
    text = "\n".join(sliced())
    for gone in ("range(512)", "get_loaders", "RuntimeError", "read_csv", "pandas"):
        assert gone not in text


def test_what_is_no_loop_stays_whether_it_is_read_or_not() -> None:
    text = "\n".join(sliced())
    for kept in ("seed(0)", "cudnn", "DEVICE = ", "config = ", "config['epochs']", "config.update", "json.load(f)"):
        assert kept in text


def test_what_is_left_out_is_listed_with_its_lines_and_reason() -> None:
    listed = {(part.cell, part.first_line): part.reason for part in LEFT_OUT}
    assert listed[(1, 3)] == "imports what nothing else that is kept uses"
    assert listed[(2, 2)] == "gives up where there is no GPU"
    assert "reads the competition's data" in listed[(2, 9)]
    assert listed[(4, 3)] == "calls unlearning, which each run does by itself"


@pytest.mark.parametrize(
    "filling",
    [
        "for i in range(2):\n    cw[i] = i",
        "if True:\n    cw = [1]",
        "with open('x') as file:\n    cw = file.read()",
        "try:\n    cw = config['x']\nexcept KeyError:\n    cw = [3]",
        "del cw[0]",
        "def fill(x):\n    x[0] = 1\nfill(cw)",
        "cw.data.fill_(3)",
        "cw.view(-1).data.fill_(3)",
        "setattr(cw, 'a', 3)",
        "other = cw\nother[0] = 1",
        "@config.setdefault('x', []).append\ndef method(net):\n    pass",
        "frame = pd.read_csv('x.csv')\ncw[0] = len(frame)",
        "loader = DataLoader(frame)\nfor batch in loader:\n    cw[0] += 1",
        "def load():\n    global cw\n    cw = 1\n    return DataLoader([])\nloader = load()",
        "import torch\ncw = torch.load('weights.pth')",
    ],
)
def test_what_fills_a_value_of_the_function_stays(filling: str) -> None:
    assert sliced(START, f"{filling}\n", NEEDS, LOOP)[:3] == [START, f"{filling}\n", NEEDS]


@pytest.mark.parametrize(
    "inside", ["cw = [i]", "cw[0] = i", "config.update(i=i)", "fill(cw)", "nonlocal_setter()", "config['cw'] = i"]
)
def test_a_loop_that_sets_a_value_of_the_function_is_refused(inside: str) -> None:
    helpers = "def fill(x):\n    x[0] = 1\ndef nonlocal_setter():\n    global cw\n    cw = 1\n"
    loop = f"for i in range(512):\n    {inside}\n    unlearning(net, r, f, v)\n"
    with pytest.raises(LoopIsNeeded, match="which here each run does by itself") as caught:
        sliced(START, helpers + NEEDS, loop)
    assert (caught.value.place.cell, caught.value.place.first_line) == (3, 1)


@pytest.mark.parametrize(
    "loop",
    [
        "def main():\n    unlearning(net, r, f, v)\n\nmain()\n",
        "import functools\nmethod = functools.partial(unlearning, v=1)\nmethod(net, r, f)\n",
        "methods = {'mine': unlearning}\nmethods['mine'](net, r, f, v)\n",
        "nets = [unlearning(net, r, f, v) for i in range(512)]\n",
        "def one(i):\n    unlearning(net, r, f, v)\npool.map(one, range(512))\n",
    ],
)
def test_the_loop_is_found_in_other_forms(loop: str) -> None:
    last = loop.rstrip().splitlines()[-1]
    kept = sliced(START, NEEDS, loop)
    assert last not in kept[2].splitlines()
    assert kept[:2] == [START, NEEDS]


def test_a_module_that_is_imported_within_a_try_is_not_set_by_the_loop() -> None:
    guarded = (
        "try:\n    import torch\nexcept ImportError:\n    torch = None\ndef unlearning(*four):\n    torch.ones(3)\n"
    )
    assert sliced(guarded, LOOP)[0] == guarded


def test_statements_of_one_line_are_told_apart() -> None:
    cells = sliced(
        START, NEEDS, "cw = [1]; unlearning(1, 2,\n 3, 4); config = {2: 3}\nunlearning(1, 2, 3, 4); cw = 5\n"
    )
    assert cells[2].splitlines() == ["cw = [1]; ", "config = {2: 3}", "pass; cw = 5"]


def test_a_redefined_function_keeps_both_and_the_last_one_counts() -> None:
    cells = ["def unlearning(net, r, f, v):\n    return 1\n", "def unlearning(net, r, f, v):\n    return 2\n"]
    assert sliced(*cells) == cells


def test_a_long_notebook_is_read_in_time_that_grows_with_it() -> None:
    def seconds(n: int) -> float:
        lines = [
            f"def f{i}():\n    global g{i}\n    return f{i + 1}(), g{i}\nx{i} = f{i}() + x{i - 1}\n" for i in range(n)
        ]
        begun = time.process_time()
        sliced("x = DataLoader()\n" + "".join(lines), NEEDS, LOOP)
        return time.process_time() - begun

    assert seconds(2000) < 10 * seconds(400) + 0.5


@pytest.mark.parametrize(
    "guard",
    [
        "if not torch.cuda.is_available():\n    print('no GPU')\n    sys.exit(1)",
        "if torch.cuda.device_count() < 1: raise SystemExit('no GPU')",
        "assert str(DEVICE).startswith('cuda'), 'no GPU'",
    ],
)
def test_guards_for_a_gpu_go_in_notebooks_and_files(guard: str) -> None:
    source = f"import sys, torch\nDEVICE = 'cpu'\n{guard}\n{NEEDS}"
    assert guard.splitlines()[-1] not in sliced(source)[0]
    kept, left_out = without_gpu_guards(source.encode())
    assert guard.splitlines()[-1] not in kept.decode()
    assert left_out[0].first_line == 3


@pytest.mark.parametrize(
    "no_guard",
    [
        "if not set_up_gpu():\n    raise RuntimeError",
        "assert (n := torch.cuda.device_count()) >= 0",
        "if not torch.cuda.is_available():\n    DEVICE = 'cpu'",
        "if not torch.cuda.is_available():\n    raise RuntimeError\nelse:\n    DEVICE = 'cuda'",
    ],
)
def test_what_does_more_than_give_up_is_no_guard(no_guard: str) -> None:
    assert without_gpu_guards(no_guard.encode()) == (no_guard.encode(), ())


def test_guards_go_in_all_files_of_a_zip() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("unlearning.py", f"import device\n{NEEDS}")
        archive.writestr("device.py", "import torch\nassert torch.cuda.is_available()\n")
    package = load_package(packed.getvalue(), "mine.zip")
    assert package.files["device.py"].decode().split("\n") == ["import torch", "", ""]
    assert [part.reason for part in package.entry_point.left_out] == ["in device.py: gives up where there is no GPU"]
