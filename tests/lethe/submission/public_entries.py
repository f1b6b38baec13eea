"""Fifteen entries in the manner of public ones, each of other habits, and what each writes into the network's bias.

The value is computed from everything that the entry sets at its top level, so an entry of which less is run writes
another one, or fails.
"""

from dataclasses import dataclass

WRITE = "    with torch.no_grad():\n        net[1].bias.fill_(float({value}))\n"
FOUR = "net, retain_loader, forget_loader, val_loader"
LOOP = f"""
for i in range(512):
    net.load_state_dict(torch.load('/kaggle/input/neurips-2023-machine-unlearning/original_model.pth'))
    unlearning({FOUR})
    torch.save(net.state_dict(), f'/kaggle/tmp/unlearned_checkpoint_{{i}}.pth')
"""


@dataclass(frozen=True)
class PublicEntry:
    """An entry: a notebook's cells, one file's text, or a zip's files; and the value that it writes."""

    name: str
    content: list[str] | str | dict[str, str]
    value: float
    style: str = "dict"


COUNTED_WEIGHTS = PublicEntry(
    "weights filled in a loop over counts",
    [
        "import torch, json\nimport pandas as pd\nfrom torch.utils.data import DataLoader",
        "counts = {str(i): i + 1 for i in range(10)}\nclass_weights = torch.zeros(10)\n"
        "for group in counts:\n    class_weights[int(group)] = 1 / counts[group]\nclass_weights /= class_weights.sum()",
        "train_df = pd.read_csv('/kaggle/input/neurips-2023-machine-unlearning/retain.csv')\ntrain_df.head()",
        f"def unlearning({FOUR}):\n" + WRITE.format(value="class_weights[1] / class_weights[0]"),
        LOOP + "!zip submission.zip /kaggle/tmp/*.pth",
    ],
    0.5,
)
NBCONVERT = PublicEntry(
    "an export by nbconvert",
    "#!/usr/bin/env python\n# coding: utf-8\n\n# In[1]:\n\n"
    "get_ipython().run_line_magic('matplotlib', 'inline')\nget_ipython().system('nvidia-smi')\nimport torch\n\n"
    "# In[2]:\n\nlearning_rates = []\nwhile len(learning_rates) < 3:\n    learning_rates.append(0.5)\n\n"
    f"# In[3]:\n\ndef unlearning({FOUR}):\n" + WRITE.format(value="sum(learning_rates)") + "\n# In[4]:\n\n" + LOOP,
    1.5,
)
PERCENT_FORMAT = PublicEntry(
    "a script in percent format with magics",
    "# %% [markdown]\n# My method\n# %%\n%matplotlib inline\n!pip install -q timm\nimport torch\nSTEPS: int = 4\n"
    f"# %%\ndef unlearning({FOUR}):\n" + WRITE.format(value="STEPS") + "# %%\n!ls -la",
    4.0,
)
REGISTRY = PublicEntry(
    "methods in a registry that a decorator fills",
    [
        "import torch\nMETHODS = {}\ndef register(name):\n    def add(function):\n        METHODS[name] = function\n"
        "        return function\n    return add",
        f"@register('scrub')\ndef scrub({FOUR}):\n" + WRITE.format(value=7),
        f"@register('noise')\ndef noise({FOUR}):\n" + WRITE.format(value=8),
        "unlearning = METHODS['noise']",
        LOOP,
    ],
    8.0,
)
ARGUMENTS = PublicEntry(
    "settings by argparse and a dataclass, changed under a condition",
    [
        "import argparse\nfrom dataclasses import dataclass\nimport torch",
        "@dataclass\nclass Config:\n    lr: float = 0.25\n    epochs: int = 1\ncfg = Config()",
        "parser = argparse.ArgumentParser()\nparser.add_argument('--epochs', type=int, default=6)\n"
        "args = parser.parse_args([])\nif args.epochs > 5:\n    cfg.epochs = args.epochs\n    setattr(cfg, 'lr', 0.5)",
        f"def unlearning({FOUR}):\n" + WRITE.format(value="cfg.epochs * cfg.lr"),
        "if __name__ == '__main__':\n    unlearning(None, None, None, None)",
    ],
    3.0,
)
PACKAGE = PublicEntry(
    "a package whose top re-exports the method",
    {
        "unlearning.py": "from methods import unlearning\n",
        "methods/__init__.py": "from .finetune import finetune as unlearning\nfrom . import settings\n"
        "settings.SCALE = 3\n",
        "methods/finetune.py": f"import torch\nfrom . import settings\ndef finetune({FOUR}):\n"
        + WRITE.format(value="settings.SCALE"),
        "methods/settings.py": "SCALE = 1\n",
        "requirements.txt": "torch\nnumpy\n",
    },
    3.0,
)
PARTIAL = PublicEntry(
    "a partial with parameters found in a search",
    [
        "import functools\nimport torch",
        "search = {'lr': [1, 2], 'decay': [3, 5]}\nbest = {}\nfor key, values in search.items():\n"
        "    best[key] = max(values)",
        "def prune_and_tune(net, retain, forget, val, lr, decay):\n" + WRITE.format(value="lr * decay"),
        "unlearning = functools.partial(prune_and_tune, **best)",
        LOOP,
    ],
    10.0,
)
WRITTEN_MODULE = PublicEntry(
    "a module that a cell writes",
    [
        f"%%writefile my_methods.py\nimport torch\nDEPTH = 2\ndef unlearning({FOUR}):\n" + WRITE.format(value="DEPTH"),
        "import sys\nsys.path.append('.')\nimport my_methods\nmy_methods.DEPTH += 4\nfrom my_methods import unlearning",
        LOOP,
    ],
    6.0,
)
OBJECT = PublicEntry(
    "an object that is called",
    "import torch\n\nclass Unlearner:\n    def __init__(self, steps):\n        self.steps = steps\n\n"
    f"    def __call__(self, {FOUR}, seed=None):\n        with torch.no_grad():\n"
    "            net[1].bias.fill_(float(self.steps))\n\nunlearning = Unlearner(steps=1)\nunlearning.steps = 9\n",
    9.0,
)
COLAB = PublicEntry(
    "a notebook from Colab",
    [
        "try:\n    from google.colab import drive\n    drive.mount('/content/drive')\n    ON_COLAB = True\n"
        "except ImportError:\n    ON_COLAB = False",
        "!wget -q https://example.org/weights.pth\n!pip install timm\nimport torch",
        "#@title Settings\nepochs = 3 #@param {type:'integer'}\nif not ON_COLAB:\n    epochs *= 2",
        f"def unlearning({FOUR}):\n" + WRITE.format(value="epochs"),
        "%%time\nnet = torch.nn.Linear(1, 1)\nunlearning(net, *get_loaders())",
    ],
    6.0,
)
GUARDED = PublicEntry(
    "a script that insists on a GPU",
    "import torch\n\nDEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    "if DEVICE != 'cuda':\n    raise RuntimeError('Make sure you have added an accelerator')\n"
    "assert torch.cuda.is_available(), 'no GPU'\ntorch.backends.cudnn.benchmark = True\n"
    f"\ndef unlearning({FOUR}):\n    net.to(DEVICE)\n" + WRITE.format(value=2),
    2.0,
)
PATCHED = PublicEntry(
    "changes to classes and modules of torch",
    [
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F",
        "def write(self, value):\n    with torch.no_grad():\n        self.bias.fill_(float(value))\n"
        "nn.Linear.write = write\n"
        "F.strength = 5\nsetattr(F, 'more', 6)\nTABLE = torch.ones(3)\nTABLE.data.mul_(2)\n"
        "TABLE.view(-1)[0:1].fill_(4)\n"
        "rest = TABLE.tolist()\ndel rest[0]",
        f"def unlearning({FOUR}):\n    net[1].write(F.strength + F.more + TABLE.sum().item() + len(rest))",
        LOOP,
    ],
    21.0,
)
MAIN = PublicEntry(
    "a script of Kaggle with a function main",
    "import os\nimport torch\nfrom torch.utils.data import DataLoader\n\n"
    "INPUT = '/kaggle/input/neurips-2023-machine-unlearning'\n"
    "ratios = {}\nwith torch.no_grad():\n    ratios['keep'] = torch.ones(2).sum().item()\n\n"
    f"def unlearning({FOUR}):\n"
    + WRITE.format(value="ratios['keep']")
    + "\ndef main():\n    if os.path.exists(f'{INPUT}/empty.txt'):\n        return\n    net = None\n"
    "    for i in range(512):\n        unlearning(net, None, None, None)\n"
    "        torch.save(net.state_dict(), f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')\n\n"
    "if __name__ == '__main__':\n    main()\n",
    2.0,
)
CLOSURE = PublicEntry(
    "a function made by another, seeds and all",
    [
        "import random\nimport numpy as np\nimport torch\ndef seed_all(seed):\n    random.seed(seed)\n"
        "    np.random.seed(seed)\n"
        "    torch.manual_seed(seed)\nseed_all(42)\nDRAWN = random.random()",
        "def make_unlearning(scale):\n    layers = []\n    for name in ('fc', 'conv'):\n        layers.append(name)\n"
        f"    def method({FOUR}):\n        with torch.no_grad():\n"
        "            net[1].bias.fill_(scale * len(layers) + round(DRAWN, 3))\n    return method",
        "unlearning = make_unlearning(scale=2)",
        LOOP,
    ],
    4.639,
)
STARTING_KIT = PublicEntry(
    "the starting kit's form with tuples, a download and an attack at its end",
    [
        "import os, requests\nimport numpy as np\nimport matplotlib.pyplot as plt\nfrom sklearn import linear_model\n"
        "import torch\nimport torchvision\nfrom torch import nn\nfrom torch.utils.data import DataLoader",
        "DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\nRNG = torch.Generator().manual_seed(42)",
        "train_set = torchvision.datasets.CIFAR10(root='./data', train=True, download=True)\n"
        "retain_loader = DataLoader(train_set, batch_size=128, shuffle=True)\nforget_loader = DataLoader(train_set)",
        "response = requests.get('https://example.org/weights_resnet18_cifar10.pth')\n"
        "open('weights.pth', 'wb').write(response.content)\nmodel = nn.Linear(1, 1)\n"
        "model.load_state_dict(torch.load('weights.pth'))\nprint(accuracy(model, retain_loader))",
        "def accuracy(net, loader):\n    for inputs, targets in loader:\n        net(inputs.to(DEVICE))",
        "def unlearning(net, retain, forget, validation):\n    for inputs, targets in retain:\n"
        "        assert len(inputs)\n" + WRITE.format(value="RNG.initial_seed()"),
        "ft_model = unlearning(model, retain_loader, forget_loader, forget_loader)\n"
        "scores = linear_model.LogisticRegression().fit(ft_model)\nplt.hist(scores)",
    ],
    42.0,
    style="tuple",
)
PUBLIC_ENTRIES = tuple(value for value in list(globals().values()) if isinstance(value, PublicEntry))
