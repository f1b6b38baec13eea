"""Programs in Kaggle's habits: one plain notebook, and what each other one has in place of a part of it.

A program's cells are made of the parts in `PLAIN`. A variation names the parts that differ; `after` and `before` add a
cell. Every program writes three models, and computes as little as its habit allows.
"""

from collections.abc import Iterator, Mapping

ROOT = "/kaggle/input/neurips-2023-machine-unlearning"
PLAIN: Mapping[str, str] = {
    "imports": """\
import copy, json, os, random, subprocess
import numpy as np
import pandas as pd
import torch
import torchvision
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')""",
    "seeds": "",
    "data": f"""\
ROOT = '{ROOT}'
def load_example(row):
    a, b = row['image_id'].split('-')
    image = torchvision.io.read_image(f'{{ROOT}}/images/{{a}}/{{b}}.png')
    return {{'image': image.to(torch.float32), 'image_id': row['image_id'], 'age_group': row['age_group'],
            'age': row['age'], 'person_id': row['person_id']}}
class HiddenDataset(Dataset):
    def __init__(self, split):
        self.examples = [load_example(row) for _, row in pd.read_csv(f'{{ROOT}}/{{split}}.csv').iterrows()]
    def __len__(self):
        return len(self.examples)
    def __getitem__(self, i):
        return self.examples[i]
def get_dataset(batch_size):
    return [DataLoader(HiddenDataset(s), batch_size=batch_size, shuffle=True) for s in ('retain', 'forget', 'validation')]
retain_loader, forget_loader, val_loader = get_dataset(32)""",
    "settings": "LR = 0.001",
    "step": "loss = nn.functional.cross_entropy(net(x), y)",
    "unlearning": """\
def unlearning(net, retain_loader, forget_loader, val_loader):
    optimizer = optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    net.train()
    for sample in forget_loader:
        x, y = sample['image'].to(DEVICE), sample['age_group'].to(DEVICE)
        optimizer.zero_grad()
        {step}
        loss.backward()
        optimizer.step()
    net.eval()""",
    "setup": "",
    "load": """\
    net = resnet18(weights=None, num_classes=10)
    net.load_state_dict(torch.load(f'{ROOT}/original_model.pth'))
    net.to(DEVICE)""",
    "each": "",
    "call": "    unlearning(net, retain_loader, forget_loader, val_loader)",
    "then": "",
    "state": "net.state_dict()",
    "save": "    torch.save({state}, f'/kaggle/tmp/unlearned_checkpoint_{{i}}.pth')",
    "loop": "os.makedirs('/kaggle/tmp', exist_ok=True)\nfor i in range(3):\n{load}\n{each}\n{call}\n{then}\n{save}",
    "archive": "subprocess.run('zip submission.zip /kaggle/tmp/*.pth', shell=True)",
}
EXTRA_ARGUMENTS = "unlearning(net, retain_loader, forget_loader, val_loader"
WITH_EPOCHS = (
    PLAIN["unlearning"]
    .replace("val_loader)", "val_loader, epochs=1, scale=1.0)")
    .replace("{step}", "{step}\n        loss = loss * scale * epochs")
)
READS_CONFIG = PLAIN["unlearning"].replace("lr=LR", "lr=config['lr'] * config.get('more', 1)")
COLLECT = "models = []\nfor i in range(3):\n{load}\n{call}\n    models.append({state})\n"

VARIATIONS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    # randomness
    **{
        f"seeds_{number}": {"seeds": line}
        for number, line in enumerate(
            (
                "torch.manual_seed(42)",
                "random.seed(1); np.random.seed(2); torch.manual_seed(3)",
                "torch.cuda.manual_seed_all(4); torch.manual_seed(4); torch.use_deterministic_algorithms(False)",
                "def seed_everything(s):\n    random.seed(s); np.random.seed(s); torch.manual_seed(s)\nseed_everything(9)",
                "torch.backends.cudnn.deterministic = True\ntorch.manual_seed(0)",
            )
        )
    },
    "seed_in_the_loop": {"each": "    torch.manual_seed(i)"},
    "numpy_generator": {"setup": "rng = np.random.default_rng(5)", "each": "    LR = float(rng.uniform(0.001, 0.002))"},
    "unseeded_generator": {"setup": "rng = np.random.default_rng()", "each": "    LR = float(rng.uniform(0.001, 0.002))"},
    "generator_of_a_loader": {
        "setup": "g = torch.Generator().manual_seed(7)\n"
        "forget_loader = DataLoader(forget_loader.dataset, batch_size=8, shuffle=True, generator=g)"
    },
    "noise_on_weights": {"then": "    with torch.no_grad():\n        for p in net.parameters():\n            p.add_(torch.randn_like(p), alpha=1e-4)"},
    "split_by_generator": {
        "setup": "part, _ = torch.utils.data.random_split(forget_loader.dataset, [0.5, 0.5], torch.Generator().manual_seed(3))\n"
        "forget_loader = DataLoader(part, batch_size=8, shuffle=True)"
    },
    "sklearn_split": {
        "setup": "from sklearn.model_selection import train_test_split\nkeep, _ = train_test_split(range(len(forget_loader.dataset)), random_state=1)\n"
        "forget_loader = DataLoader(torch.utils.data.Subset(forget_loader.dataset, keep), batch_size=8)"
    },
    # the notebook's own loaders
    **{f"batch_{size}": {"data": PLAIN["data"].replace("get_dataset(32)", f"get_dataset({size})")} for size in (8, 16, 64)},
    "normalising_dataset": {"data": PLAIN["data"].replace("image.to(torch.float32)", "image.to(torch.float32) / 255 - 0.5")},
    "flips": {"data": PLAIN["data"].replace("        return self.examples[i]\n", "        e = dict(self.examples[i])\n        e['image'] = torchvision.transforms.functional.hflip(e['image']) if torch.rand(1) < 0.5 else e['image']\n        return e\n")},
    "pil_images": {"data": PLAIN["data"].replace("torchvision.io.read_image(f'{ROOT}/images/{a}/{b}.png')", "torch.from_numpy(np.array(Image.open(f'{ROOT}/images/{a}/{b}.png').convert('RGB'))).permute(2, 0, 1)").replace("def load", "from PIL import Image\ndef load", 1)},
    "pil_to_tensor": {"data": PLAIN["data"].replace("torchvision.io.read_image(f'{ROOT}/images/{a}/{b}.png')", "torchvision.transforms.ToTensor()(Image.open(os.path.join(ROOT, 'images', a, b + '.png')))").replace("def load", "from PIL import Image\ndef load", 1)},
    "lazy_dataset": {"data": PLAIN["data"].replace("[load_example(row) for _, row in pd.read_csv(f'{ROOT}/{split}.csv').iterrows()]", "pd.read_csv(f'{ROOT}/{split}.csv')").replace("return self.examples[i]", "return load_example(self.examples.iloc[i])")},
    "relative_paths": {"data": PLAIN["data"].replace(f"ROOT = '{ROOT}'", "ROOT = '../input/neurips-2023-machine-unlearning'"), "load": PLAIN["load"]},
    "worker_processes": {"data": PLAIN["data"].replace("shuffle=True)", "shuffle=True, num_workers=2)")},
    "subset": {"setup": "forget_loader = DataLoader(torch.utils.data.Subset(forget_loader.dataset, range(10)), batch_size=5, shuffle=True)"},
    "weighted_sampler": {
        "setup": "labels = [e['age_group'] for e in forget_loader.dataset]\nw = 1 / np.bincount(labels, minlength=10)[labels]\n"
        "forget_loader = DataLoader(forget_loader.dataset, batch_size=8, sampler=torch.utils.data.WeightedRandomSampler(w, 16))"
    },
    "drop_last": {"data": PLAIN["data"].replace("shuffle=True)", "shuffle=True, drop_last=True)")},
    "tuple_dataset": {
        "data": PLAIN["data"].replace("return self.examples[i]", "return self.examples[i]['image'], self.examples[i]['age_group']"),
        "unlearning": PLAIN["unlearning"].replace("for sample in forget_loader:\n        x, y = sample['image'].to(DEVICE), sample['age_group'].to(DEVICE)", "for x, y in forget_loader:"),
    },
    "loaders_made_anew": {"each": "    retain_loader, forget_loader, val_loader = get_dataset(16)"},
    "collate_function": {"data": PLAIN["data"].replace("shuffle=True)", "shuffle=True, collate_fn=lambda b: {'image': torch.stack([e['image'] for e in b]), 'age_group': torch.tensor([e['age_group'] for e in b])})")},
    "concatenated_sets": {"setup": "forget_loader = DataLoader(torch.utils.data.ConcatDataset([forget_loader.dataset, torch.utils.data.Subset(retain_loader.dataset, range(8))]), batch_size=16, shuffle=True)"},
    # arguments and what stands around the call
    "keyword_arguments": {"unlearning": WITH_EPOCHS, "call": f"    {EXTRA_ARGUMENTS}, epochs=2)"},
    "partial_argument": {"unlearning": WITH_EPOCHS, "setup": "from functools import partial\nunlearn = partial(unlearning, scale=0.5)", "call": "    unlearn(net, retain_loader, forget_loader, val_loader)"},
    "argument_of_the_loop": {"unlearning": WITH_EPOCHS, "call": f"    {EXTRA_ARGUMENTS}, scale=1 + i)"},
    "lambda_call": {"unlearning": WITH_EPOCHS, "setup": "run = lambda m: unlearning(m, retain_loader, forget_loader, val_loader, scale=2.)", "call": "    run(net)"},
    "called_twice": {"call": "    for k in range(2):\n        unlearning(net, retain_loader, forget_loader, val_loader)"},
    "not_in_the_first_run": {"call": "    if i > 0:\n        unlearning(net, retain_loader, forget_loader, val_loader)"},
    "within_autocast": {"call": "    with torch.autocast('cpu', dtype=torch.bfloat16):\n        unlearning(net, retain_loader, forget_loader, val_loader)"},
    "net_returned": {"unlearning": PLAIN["unlearning"] + "\n    return copy.deepcopy(net)", "call": "    net = unlearning(net, retain_loader, forget_loader, val_loader)"},
    "net_and_loss_returned": {"unlearning": PLAIN["unlearning"] + "\n    return net, float(loss)", "call": "    net, loss = unlearning(net, retain_loader, forget_loader, val_loader)"},
    "dict_returned": {"unlearning": PLAIN["unlearning"] + "\n    return {'net': net}", "call": "    net = unlearning(net, retain_loader, forget_loader, val_loader)['net']"},
    "student_network": {
        "unlearning": "def unlearning(teacher, retain_loader, forget_loader, val_loader):\n    net = copy.deepcopy(teacher)\n" + PLAIN["unlearning"].split("\n", 1)[1] + "\n    return net",
        "call": "    net = unlearning(net, retain_loader, forget_loader, val_loader)",
    },
    # changes of the model before and after the call
    **{
        f"model_{name}": {"each": f"    {line}"}
        for name, line in {
            "frozen_layer": "net.conv1.weight.requires_grad = False",
            "frozen_all_but_last": "[p.requires_grad_(n.startswith('fc')) for n, p in net.named_parameters()]",
            "gelu": "net.relu = nn.GELU()",
            "new_head": "net.fc.reset_parameters()",
            "new_layer": "nn.init.kaiming_normal_(net.layer4[1].conv2.weight)",
            "eval": "net.eval()",
            "hook": "net.fc.register_forward_hook(lambda m, a, out: out * 2)",
            "backward_hook": "net.fc.weight.register_hook(lambda g: g * 0.5)",
            "dropout": "net.fc.register_forward_pre_hook(lambda m, a: (nn.functional.dropout(a[0], 0.3),))",
            "channels_last": "net = net.to(memory_format=torch.channels_last)",
            "batchnorm_momentum": "[setattr(m, 'momentum', 0.5) for m in net.modules() if isinstance(m, nn.BatchNorm2d)]",
            "pruned": "[p.data.mul_((p.data.abs() > 0.01).float()) for p in net.parameters() if p.dim() > 1]",
        }.items()
    },
    **{
        f"after_{name}": {"then": f"    {line}"}
        for name, line in {
            "scaled": "net.fc.weight.data.mul_(0.9)",
            "interpolated": "base = torch.load(f'{ROOT}/original_model.pth'); net.load_state_dict({k: (v + base[k]) / 2 if v.is_floating_point() else v for k, v in net.state_dict().items()})",
            "rounded": "net.half().float()",
            "statistics_reset": "[m.reset_running_stats() for m in net.modules() if isinstance(m, nn.BatchNorm2d)]",
            "parameters_zeroed": "net.fc.bias.data.zero_()",
            "cpu": "net.cpu()",
            "second_phase": "opt = optim.Adam(net.parameters(), lr=1e-4); nn.functional.cross_entropy(net(next(iter(retain_loader))['image']), torch.zeros(32, dtype=torch.long)).backward(); opt.step()",
            "accuracy": "print((net(next(iter(val_loader))['image']).argmax(1) == 0).float().mean())",
        }.items()
    },
    # what is saved, and how
    "half": {"state": "{{k: v.half() for k, v in net.state_dict().items()}}"},
    "half_network": {"then": "    net = net.half()"},
    "fixed_state": {"setup": "def fix(state):\n    return {k: v * 0.5 if 'fc' in k else v for k, v in state.items()}", "state": "fix(net.state_dict())"},
    "ordered_state": {"state": "__import__('collections').OrderedDict((k, v.clone()) for k, v in net.state_dict().items())"},
    "save_function": {"setup": "def save_model(net, i):\n    net.fc.weight.data.mul_(1.1)\n    torch.save(net.state_dict(), f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')", "save": "    save_model(net, i)"},
    "saved_by_imported_name": {"setup": "from torch import save", "save": "    save({state}, f'/kaggle/tmp/unlearned_checkpoint_{{i}}.pth')"},
    "saved_to_open_file": {"save": "    with open(f'/kaggle/tmp/unlearned_checkpoint_{{i}}.pth', 'wb') as f:\n        torch.save({state}, f)"},
    "saved_and_renamed": {"save": "    torch.save({state}, '/kaggle/tmp/part.pth')\n    os.rename('/kaggle/tmp/part.pth', f'/kaggle/tmp/unlearned_checkpoint_{{i}}.pth')"},
    "saved_old_form": {"save": "    torch.save({state}, f'/kaggle/tmp/unlearned_checkpoint_{{i}}.pth', _use_new_zipfile_serialization=False)"},
    "other_names": {"save": "    torch.save({state}, f'/kaggle/tmp/net_{{i}}.pt')", "archive": "!zip -q submission.zip /kaggle/tmp/*.pt"},
    "numbers_with_zeros": {"save": "    torch.save({state}, f'/kaggle/tmp/unlearned_checkpoint_{{i:03d}}.pth')"},
    "working_folder": {"save": "    torch.save({state}, f'unlearned_checkpoint_{{i}}.pth')", "archive": "!zip -q submission.zip unlearned_*.pth"},
    "data_parallel": {"each": "    net = nn.DataParallel(net)", "state": "net.module.state_dict()"},
    "left_over_files": {"each": "    torch.save({{'epoch': i}}, '/kaggle/tmp/log.pt')", "archive": "!zip -q submission.zip /kaggle/tmp/unlearned_*.pth"},
    "best_of_epochs": {
        "unlearning": PLAIN["unlearning"] + "\n    torch.save(net.state_dict(), '/kaggle/tmp/best.pth')\n    net.fc.bias.data.fill_(9.)\n    net.load_state_dict(torch.load('/kaggle/tmp/best.pth'))"
    },
    "zipped_by_python": {"archive": "import zipfile, glob\nwith zipfile.ZipFile('submission.zip', 'w') as z:\n    for p in sorted(glob.glob('/kaggle/tmp/*.pth')):\n        z.write(p)"},
    "zipped_by_shutil": {"archive": "import shutil\nshutil.make_archive('/kaggle/working/submission', 'zip', '/kaggle/tmp')"},
    # second loops
    "collected_then_saved": {"loop": COLLECT + "for i, state in enumerate(models):\n    torch.save(state, f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')"},
    "collected_changed_saved": {"loop": COLLECT + "for i, state in enumerate(models):\n    state['fc.bias'] = state['fc.bias'] * 0.5\n    torch.save(state, f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')"},
    "collected_averaged": {"loop": COLLECT + "mean = {k: sum(m[k].float() for m in models) / 3 for k in models[0]}\nfor i in range(3):\n    torch.save(mean, f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')"},
    # the loop's form
    "main_function": {"loop": "def main():\n    for i in range(3):\n        net = resnet18(weights=None, num_classes=10)\n        net.load_state_dict(torch.load(f'{{ROOT}}/original_model.pth'))\n        unlearning(net, retain_loader, forget_loader, val_loader)\n        torch.save(net.state_dict(), f'/kaggle/tmp/unlearned_checkpoint_{{i}}.pth')\nif __name__ == '__main__':\n    main()"},
    "while_loop": {"loop": "i = 0\nwhile i < 3:\n{load}\n{call}\n{save}\n    i += 1"},
    "mapped": {"loop": "def one(i):\n{load}\n{call}\n{save}\n    return i\nprint(list(map(one, range(3))))"},
    "thread_pool": {"loop": "from concurrent.futures import ThreadPoolExecutor\ndef one(i):\n{load}\n{call}\n{save}\nwith ThreadPoolExecutor(1) as pool:\n    list(pool.map(one, range(3)))"},
    "empty_txt": {"loop": "if os.path.exists(f'{{ROOT}}/empty.txt'):\n    subprocess.run('touch submission.zip', shell=True)\nelse:\n    for i in range(3):\n        net = resnet18(weights=None, num_classes=10)\n        net.load_state_dict(torch.load(f'{{ROOT}}/original_model.pth'))\n        unlearning(net, retain_loader, forget_loader, val_loader)\n        torch.save(net.state_dict(), f'/kaggle/tmp/unlearned_checkpoint_{{i}}.pth')"},
    "registry": {"setup": "methods = {{'mine': unlearning}}", "call": "    methods['mine'](net, retain_loader, forget_loader, val_loader)"},
    "two_methods": {"setup": "def nothing(*a):\n    pass\nmethods = [unlearning, nothing]", "call": "    methods[i % 2](net, retain_loader, forget_loader, val_loader)"},
    "class_with_call": {"setup": "class Method:\n    def __init__(self):\n        self.n = 0\n    def __call__(self, *a):\n        self.n += 1\n        return unlearning(*a)\nmethod = Method()", "call": "    method(net, retain_loader, forget_loader, val_loader)"},
    "network_made_once": {"setup": "net = resnet18(weights=None, num_classes=10)", "load": "    net.load_state_dict(torch.load(f'{ROOT}/original_model.pth'))"},
    "deep_copy": {"setup": "first = resnet18(weights=None, num_classes=10)\nfirst.load_state_dict(torch.load(f'{{ROOT}}/original_model.pth'))", "load": "    net = copy.deepcopy(first)"},
    "progress_bar": {"loop": "from tqdm.notebook import tqdm\nfor i in tqdm(range(3)):\n{load}\n{call}\n{save}"},
    "garbage": {"then": "    import gc; gc.collect(); torch.cuda.empty_cache()"},
    # what is computed before the loop
    "class_weights": {
        "setup": "counts = json.load(open(f'{{ROOT}}/age_class_weights.json'))\nweights = torch.tensor([1 / max(1, counts[str(g)]) for g in range(10)])",
        "step": "loss = nn.functional.cross_entropy(net(x), y, weight=weights)",
    },
    "fisher_before_the_loop": {
        "setup": "probe = resnet18(weights=None, num_classes=10)\nprobe.load_state_dict(torch.load(f'{{ROOT}}/original_model.pth'))\nb = next(iter(retain_loader))\nnn.functional.cross_entropy(probe(b['image']), b['age_group']).backward()\nimportance = {{n: p.grad ** 2 for n, p in probe.named_parameters()}}",
        "then": "    with torch.no_grad():\n        for n, p in net.named_parameters():\n            p.sub_(0.01 * importance[n])",
    },
    "config_update": {"setup": "config = {{}}\n(config or {{}}).update(lr=1)\nconfig.update(lr=0.002)", "unlearning": READS_CONFIG},
    "config_set_by_unbound_call": {"setup": "config = {{'lr': 0.001}}\ndict.update(config, more=3)", "unlearning": READS_CONFIG},
    "config_set_in_the_loop": {"setup": "config = {{'lr': 0.001}}", "each": "    config['more'] = i + 2", "unlearning": READS_CONFIG},
    "teacher_changed_by_map": {
        "setup": "teacher = resnet18(weights=None, num_classes=10)\nlist(map(lambda p: p.data.mul_(0.5), teacher.parameters()))\nteacher.eval()",
        "step": "loss = (net(x) - teacher(x)).pow(2).mean()",
    },
    "globals_written": {"setup": "globals()['LR'] = 0.004\nexec('LR = LR / 2')"},
    "default_dtype": {"setup": "torch.set_grad_enabled(True)\ntorch.set_num_threads(1)\ntorch.nn.Linear.reset_parameters = lambda self: None"},
    "patched_library": {"setup": "from functools import partial\noptim.SGD = partial(optim.SGD, weight_decay=0.01)"},
    "table_in_the_function": {"setup": "df = pd.read_csv(f'{{ROOT}}/forget.csv')\nLR = 0.0001 * len(df)"},
    "adam_schedule": {"unlearning": PLAIN["unlearning"].replace("optim.SGD(net.parameters(), lr=LR, momentum=0.9)", "optim.AdamW(net.parameters(), lr=LR)\n    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 4, verbose=False)").replace("optimizer.step()", "optimizer.step()\n        schedule.step()")},
    "gradient_ascent": {"step": "loss = -nn.functional.cross_entropy(net(x), y)"},
    "kl_on_noise": {"step": "loss = nn.functional.kl_div(net(x).log_softmax(1), torch.rand(len(x), 10).softmax(1), reduction='batchmean')"},
    "module_written_by_a_cell": {"after_imports": "%%writefile mine.py\ndef factor():\n    return 3\n", "setup": "import mine\nLR = LR * mine.factor()"},
    "figures": {"setup": "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2])\nplt.savefig('f.png')\nplt.show()", "after_imports": "%matplotlib inline"},
    "display": {"setup": "from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))\ndisplay(pd.DataFrame({{'a': [1]}}))"},
    "shell_lines": {"setup": "!ls {ROOT} | head -3\nfiles = !ls /kaggle/input\nassert len(files) == 1\n%env LETHE_X=1\n%time x = 1"},
    "pip_install": {"after_imports": "!pip install -q einops\n%pip install timm"},
    "gpu_guard": {"setup": "if DEVICE.type != 'cuda':\n    raise RuntimeError('Make sure you have added an accelerator to your notebook')"},
    "cuda_calls": {"each": "    net = net.cuda()\n    torch.cuda.synchronize()"},
    "dataclass_settings": {"setup": "from dataclasses import dataclass\n@dataclass\nclass Settings:\n    lr: float = 0.002\nLR = Settings().lr"},
    "future_import": {"imports": "from __future__ import annotations\n" + PLAIN["imports"]},
}  # fmt: skip


def programs() -> Iterator[tuple[str, list[str]]]:
    """Yield each program's name and its cells."""
    for name, parts in VARIATIONS.items():
        yield name, _cells({**PLAIN, **parts})


def _cells(parts: Mapping[str, str]) -> list[str]:
    filled = {name: _filled(parts[name], parts) for name in ("unlearning", "loop")}
    setup = parts["setup"].replace("{{", "{").replace("}}", "}")
    order = (
        parts["imports"],
        parts.get("after_imports", ""),
        parts["seeds"],
        parts["data"],
        parts["settings"],
        filled["unlearning"],
        setup,
        filled["loop"],
        parts["archive"],
    )
    return [cell for cell in order if cell.strip()]


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """Put parts in the places that name them; `{{` stands for a brace that is the program's own."""
    for _ in range(3):
        for name in ("load", "each", "call", "then", "save", "state", "step"):
            text = text.replace("{" + name + "}", parts[name])
    return text.replace("{{", "{").replace("}}", "}")
