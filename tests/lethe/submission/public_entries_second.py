"""Fourteen more entries in the manner of public ones, and what each writes into the network's bias."""

from tests.lethe.submission.public_entries import FOUR, LOOP, WRITE, PublicEntry

LOOP_ARGUMENTS = PublicEntry(
    "a loop that passes more than the defaults",
    [
        "import torch\nSCALE = 3\nHP = {'power': 2}",
        f"def unlearning({FOUR}, epochs=1, power=1, verbose=False):\n" + WRITE.format(value="epochs ** power"),
        LOOP.replace("val_loader)", "val_loader, SCALE, **HP)"),
    ],
    9.0,
)
CELL_TEXTS = PublicEntry(
    "an export whose timed cells are texts",
    "# coding: utf-8\n# In[1]:\nget_ipython().run_cell_magic('capture', '', 'import torch\\nALPHA = .5\\n')\n#\n"
    f"def unlearning({FOUR}):\n" + WRITE.format(value="ALPHA * 3") + "\n# In[3]:\n"
    f"get_ipython().run_cell_magic('time', '', {LOOP!r})\n",
    1.5,
)
TUPLE_FORMS = PublicEntry(
    "batches of the starting kit unpacked within the loop",
    """
import torch
from tqdm.auto import tqdm
def count(dl):
    bar, n = tqdm(dl, disable=True), 0
    for batch in bar:
        inputs, targets = batch
        n += len(inputs)
        bar.set_description(str(n))
    return n
def unlearning(net, retain, forget, validation):
    data = next(iter(forget))
    n = count(retain) + len(data[0])
"""
    + WRITE.format(value="n"),
    9.0,
    style="tuple",
)
FULL_MODEL = PublicEntry(
    "early stopping that saves and loads whole models",
    f"""
import os, tempfile
import torch
class EarlyStopping:
    path = os.path.join(tempfile.gettempdir(), 'best.pt')
    def __call__(self, net):
        torch.save({{'net': net, 'loss': 0.1}}, self.path)
    def restore(self):
        return torch.load(self.path)['net']
def unlearning({FOUR}):
    stop = EarlyStopping()
"""
    + WRITE.format(value=4)
    + "    stop(net)\n    net.load_state_dict(stop.restore().state_dict())\n",
    4.0,
)
COMPILED = PublicEntry(
    "a compiled network, returned",
    [
        "import torch\n@torch.compile\ndef double(x):\n    return 2 * x",
        f"def unlearning({FOUR}):\n    compiled = torch.compile(net, mode='reduce-overhead')\n"
        "    value = double(compiled(next(iter(retain_loader))['image'][:1] * 0).sum() + 2.5)\n"
        + WRITE.format(value="value.detach()")
        + "    return compiled",
        LOOP,
    ],
    5.0,
)
PARALLEL = PublicEntry(
    "a network in DataParallel, returned so",
    [
        "import torch\nfrom torch import nn\nfrom torch.optim.lr_scheduler import ReduceLROnPlateau",
        f"def unlearning({FOUR}):\n    sgd = torch.optim.SGD(net.parameters(), lr=4.0)\n"
        "    ReduceLROnPlateau(sgd, 'min', patience=0, verbose=True).step(1.0)\n"
        + WRITE.format(value="sgd.param_groups[0]['lr']")
        + "    return nn.DataParallel(net)",
        LOOP,
    ],
    4.0,
)
AWAITED = PublicEntry(
    "cells that await, with the loop in a coroutine",
    [
        "import asyncio, torch\nasync def fetch(n):\n    await asyncio.sleep(0)\n    return n",
        "RATES = [await fetch(n) for n in (1, 2, 4)]",
        f"def unlearning({FOUR}):\n" + WRITE.format(value="sum(RATES)"),
        "async def main():\n    for i in range(512):\n        unlearning(net, r, f, v)\n"
        "        torch.save(net.state_dict(), f'/kaggle/tmp/unlearned_{i}.pth')\nawait main()",
    ],
    7.0,
)
BY_NAME = PublicEntry(
    "values found by their names, from a table that an earlier cell wrote",
    [
        "import os, torch, tempfile\nimport numpy as np\nimport pandas as pd\nos.chdir(tempfile.mkdtemp())",
        "pd.DataFrame({'n': [2, 3]}).to_csv('counts.csv', index=False)\ndf = pd.read_csv('counts.csv')\n"
        "df['n'].to_csv('copy.csv', index=False)",
        "scale_scrub = [0]\nscale_scrub[0] = int(df.n.sum())\nMETHOD = 'scrub'",
        f"def unlearning({FOUR}):\n    copied = sum(pd.read_csv('copy.csv').n)\n"
        + WRITE.format(value="globals()[f'scale_{METHOD}'][0] + copied"),
        LOOP,
    ],
    10.0,
)
HANDED = PublicEntry(
    "settings that hold the method that reads them",
    [
        "import torch\nclass Config:\n    def __init__(self, method, lr):\n        self.method, self.lr = method, lr",
        f"def unlearning({FOUR}):\n" + WRITE.format(value="cfg.lr"),
        "METHODS = {'mine': unlearning, 'b': lambda *four: None}\ncfg = Config(METHODS['mine'], lr=2.5)\ncfg.lr *= 2",
        LOOP,
    ],
    5.0,
)
STATISTICS = PublicEntry(
    "a helper network whose statistics and weights come from data",
    [
        "import os, tempfile\nimport torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
        "from torch.nn.utils import parameters_to_vector, vector_to_parameters",
        "path = os.path.join(tempfile.mkdtemp(), 'w.pt')\nhelper = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, "
        "momentum=1.0))\ntorch.save(torch.full((4,), 2.0), path)\nvector = torch.load(path)\n"
        "vector_to_parameters(vector, helper.parameters())",
        "for batch in DataLoader(torch.ones(4, 1), batch_size=4):\n    helper(batch)",
        f"def unlearning({FOUR}):\n"
        + WRITE.format(value="helper[1].running_mean + parameters_to_vector(helper.parameters()).sum()"),
        LOOP,
    ],
    12.0,
)
MODERN = PublicEntry(
    "match, for-else, walrus, enum, nonlocal and positional-only arguments",
    [
        "import enum, torch\nclass Kind(enum.Enum):\n    FT = enum.auto()\n    GA = enum.auto()",
        "def rate(kind):\n    match kind:\n        case Kind.FT:\n            return 3\n"
        "        case _:\n            return 0\n"
        "RATES = {k: found for k in Kind if (found := rate(k)) > 0}",
        "for attempt in range(3):\n    try:\n        value = RATES[Kind.FT]\n    except KeyError:\n        continue\n"
        "    else:\n        break\nelse:\n    raise RuntimeError\nfirst, second = 1, 2\nfirst, second = second, first",
        "def counter():\n    n = 0\n    def add(k):\n        nonlocal n\n        n += k\n        return n\n"
        "    return add\n"
        "add = counter()\nadd(10)",
        f"def unlearning({FOUR}, /):\n" + WRITE.format(value="value + first + add(0)"),
        LOOP,
    ],
    15.0,
)
EXECUTED = PublicEntry(
    "cells that execute texts, fill globals and patch torch",
    [
        "import torch, functools\nexec(compile('lr = 2\\ndef helper(x):\\n    return x * lr', 'text', 'exec'))\n"
        "for name in ('a', 'b'):\n    globals()[f'weight_{name}'] = 3",
        "torch.load = functools.partial(torch.load, weights_only=False)\ntorch.Tensor.twice = lambda self: self * 2\n"
        "with torch.no_grad():\n    weight_b += 1",
        f"def unlearning({FOUR}):\n"
        + WRITE.format(value="helper(weight_a + weight_b) + torch.ones(()).twice() + len(torch.load.keywords) - 1"),
        LOOP,
    ],
    16.0,
)
RESOURCES = PublicEntry(
    "a zip with a path of its own, settings and data beside the code",
    {
        "solution/main.py": "import json, sys\nfrom pathlib import Path\nROOT = Path(__file__).resolve().parent\n"
        "sys.path.append(str(ROOT / 'lib'))\nfrom steps import write\n"
        "SETTINGS = json.loads((ROOT / 'conf' / 'settings.json').read_text())\n"
        "class Method:\n    def __init__(self, **settings):\n        self.settings = settings\n"
        f"    def fit(self, {FOUR}):\n        write(net, **self.settings)\nunlearning = Method(**SETTINGS).fit\n",
        "solution/lib/steps.py": "import torch\ndef write(net, lr, epochs, **_):\n" + WRITE.format(value="lr * epochs"),
        "solution/conf/settings.json": '{"lr": 2, "epochs": 7, "comment": "of the last search"}',
        "solution/README.md": "# Mine",
    },
    14.0,
)
DECORATED = PublicEntry(
    "decorators upon decorators, which keep no signature",
    f"""
import functools, time
import torch
LOG = []
def timed(function):
    def inner(*args, **kwargs):
        begun = time.perf_counter()
        done = function(*args, **kwargs)
        LOG.append(time.perf_counter() - begun)
        return done
    return inner
def with_settings(**settings):
    def decorate(function):
        @functools.wraps(function)
        def inner(net, *loaders, **more):
            return function(net, *loaders, **settings, **more)
        return inner
    return decorate
@timed
@with_settings(lr=6, device='cpu')
@torch.enable_grad()
def unlearning({FOUR}, lr=1, device=None):
"""
    + WRITE.format(value="lr + len(LOG)"),
    6.0,
)
RELATIVE_INPUT = PublicEntry(
    "a script with argparse and the input beside the working folder",
    f"""
import argparse
from pathlib import Path
import torch
from torch.utils.data import DataLoader
def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--data', type=Path, default=Path('../input/neurips-2023-machine-unlearning'))
    parser.add_argument('--out', type=Path, default=Path('../tmp'))
    parser.add_argument('--epochs', type=int, default=8)
    args, _ = parser.parse_known_args([])
    return args
args = get_args()
retain_loader = DataLoader(sorted(args.data.glob('*.png')))
def unlearning({FOUR}):
"""
    + WRITE.format(value="args.epochs")
    + """
def main():
    args.out.mkdir(exist_ok=True, parents=True)
    for k in range(512):
        net = torch.load(args.data / 'original_model.pth')
        unlearning(net, retain_loader, None, None)
        torch.save(net.state_dict(), args.out / f'unlearned_checkpoint_{k}.pth')
if __name__ == '__main__':
    main()
""",
    8.0,
)
SECOND_ENTRIES = tuple(value for value in list(globals().values()) if isinstance(value, PublicEntry))
