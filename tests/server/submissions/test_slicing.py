"""Of a notebook, a function keeps what it needs and loses the loop around it."""

from server.submissions.slicing import keep_what_is_needed

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


def sliced() -> list[str]:
    return keep_what_is_needed(CELLS, "unlearning")


def test_line_numbers_stay() -> None:
    assert [cell.count("\n") for cell in sliced()] == [cell.count("\n") for cell in CELLS]


def test_the_function_and_what_it_calls_stay() -> None:
    assert sliced()[2] == FUNCTION


def test_the_loop_and_the_guard_and_the_seeds_go() -> None:
    text = "\n".join(sliced())
    for gone in ("range(512)", "get_loaders", "resnet18", "RuntimeError", "seed(", "read_csv", "json.load", "pandas"):
        assert gone not in text


def test_values_that_the_function_reads_stay_with_what_changes_them() -> None:
    settings = sliced()[1]
    for kept in ("DEVICE = ", "config = ", "config['epochs']", "config.update"):
        assert kept in settings


def test_a_local_name_does_not_keep_the_one_outside() -> None:
    cells = ["optimizer = make()\n", "def unlearning(net, r, f, v):\n    optimizer = 1\n    return optimizer\n"]
    assert keep_what_is_needed(cells, "unlearning")[0] == "\n"


def test_a_class_keeps_its_bases_decorators_and_what_methods_use() -> None:
    cells = [
        "import functools\nfrom torch import nn\nSCALE = 3\nUNUSED = 4\n",
        "class Head(nn.Module):\n    def forward(self, x):\n        return x * SCALE\n",
        "@functools.cache\ndef head():\n    return Head()\n\ndef unlearning(net, r, f, v):\n    head()\n",
    ]
    kept = keep_what_is_needed(cells, "unlearning")
    assert kept[0] == "import functools\nfrom torch import nn\nSCALE = 3\n\n"
    assert kept[1:] == cells[1:]


def test_a_redefined_function_keeps_both_and_the_last_one_counts() -> None:
    cells = ["def unlearning(net, r, f, v):\n    return 1\n", "def unlearning(net, r, f, v):\n    return 2\n"]
    assert keep_what_is_needed(cells, "unlearning") == cells
