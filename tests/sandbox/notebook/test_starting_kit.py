"""Whole notebooks on ResNet-18: the examples, and the hosts' starting kit, whose downloads are the split."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load

import examples
from lethe.submission.package import load_package
from sandbox.launcher import Launcher, SandboxSpec
from tests.sandbox.conftest import NETWORK, write_split
from tests.sandbox.notebook.conftest import FOLDER, POLICY, Notebooks
from worker.evaluation.notebook_runs import notebook_mounts

pytestmark = pytest.mark.slow

SENT = ("half_precision", "left_over_files")  # the whole way, in tests/end_to_end/test_notebooks.py
EXAMPLES = sorted((Path(next(iter(examples.__path__))) / "notebooks").glob("*.ipynb"))
PICTURES = {**NETWORK, "name": "resnet18", "options": {}, "input_shape": [3, 32, 32], "input_scale": 1.0}
DATA = """
    import os
    import requests
    import numpy as np
    import matplotlib.pyplot as plt
    import torchvision
    from torchvision import transforms
    from torchvision.models import resnet18
    from torch.utils.data import DataLoader, Subset
    RNG = torch.Generator().manual_seed(42)
    plain = transforms.Compose([transforms.ToTensor(), transforms.Normalize((.5, .5, .5), (.2, .2, .2))])
    train_set = torchvision.datasets.CIFAR10(root='./data', train=True, download=True, transform=plain)
    held_out = torchvision.datasets.CIFAR10(root='./data', train=False, download=True, transform=plain)
    test_set, val_set = torch.utils.data.random_split(held_out, [0.5, 0.5], generator=RNG)
    def fetch(name):
        if not os.path.exists(name):
            open(name, 'wb').write(requests.get('https://example.org/' + name).content)
    local_path = 'forget_idx.npy'
    fetch(local_path)
    forget_idx = np.load(local_path)
    mask = np.zeros(len(train_set.targets), dtype=bool)
    mask[forget_idx] = True
    retain_set, forget_set = Subset(train_set, np.arange(mask.size)[~mask]), Subset(train_set, forget_idx)
    retain_loader = DataLoader(retain_set, batch_size=32, shuffle=True, num_workers=2, generator=RNG)
    from PIL import Image
    picture = sorted(os.popen('find /kaggle/input -name "*.png"').read().split())[0]
    for mode in (torchvision.io.ImageReadMode.RGB, torchvision.io.ImageReadMode.UNCHANGED):
        served = torchvision.io.read_image(picture, mode)
        real = torchvision.io.decode_png(torchvision.io.read_file(picture))
        assert torch.equal(served, real) and served.stride() == real.stride()
    assert (np.array(Image.open(picture)) == served.permute(1, 2, 0).numpy()).all()
    assert len(retain_set) == 60 and len(forget_set) == 30 and len(held_out) == 60
    assert len(test_set) == len(forget_set)
"""
MODEL = """
    fetch('weights_resnet18_cifar10.pth')
    weights_pretrained = torch.load('weights_resnet18_cifar10.pth', map_location='cpu')
    model = resnet18(weights=None, num_classes=10)
    model.load_state_dict(weights_pretrained)
    images, labels = next(iter(DataLoader(train_set, batch_size=16)))
    figure, axes = plt.subplots(figsize=(12, 6))
    axes.imshow(torchvision.utils.make_grid(images, nrow=4).permute(1, 2, 0))
    plt.show()
"""
FUNCTION = """
    def unlearning(net, retain, forget, validation):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
        for inputs, targets in retain:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
        return net
    ft_model = unlearning(model, retain_loader, None, None)
    fetch('retrain_weights_resnet18_cifar10.pth')
    retrained = torch.load('retrain_weights_resnet18_cifar10.pth')
    model.load_state_dict(retrained)
    print(model(images).mean())
"""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebooks]:
    folder = tmp_path_factory.mktemp("kit")
    split = write_split(folder / "visible", network=PICTURES, examples={"retain": 60, "forget": 30, "validation": 40})
    (folder / "stage").mkdir()
    mounts = notebook_mounts(split, folder / "layout", key="k", input_folder=FOLDER)
    policy = replace(POLICY, mounts=mounts, scratch_mib=256, memory_mib=1536, file_size_mib=256, shared_memory_mib=128)
    with Launcher(SandboxSpec(data_dir=split, stage_dir=folder / "stage", policy=policy)).start() as sandbox:
        yield Notebooks(sandbox, folder / "stage", split=split)


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem not in SENT], ids=lambda path: path.stem)
def test_example_runs_to_its_first_model(kit: Notebooks, path: Path) -> None:
    assert load_package(path.read_bytes(), path.name).entry_point.program == "saves"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    ended = kit.program(*("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    assert ended.result.weights is not None, ended.log
    assert ended.result.weights != (kit.split / "original_model.safetensors").read_bytes()


def test_the_kit_runs_to_its_function(kit: Notebooks) -> None:
    ended = kit.program(DATA, MODEL, FUNCTION, program="defines", style="tuple")
    assert ended.result.weights is not None, ended.log
    assert ended.log.count("skipped:") == 4
    assert "CIFAR10, forget_idx.npy, weights_resnet18_cifar10.pth: given from this competition's data" in ended.log
    original = (kit.split / "original_model.safetensors").read_bytes()
    assert not load(original)["fc.bias"].equal(load(ended.result.weights)["fc.bias"])


TRIES = """
    ft_model = unlearning(model, retain_loader, None, None)
    losses = [len(test_set), len(retain_set)]
    assert losses[0] == losses[1], 'as many test losses as forget losses'
    best = {}['epoch 3']
"""


def test_what_fails_after_the_function_is_skipped_unless_it_is_needed(kit: Notebooks) -> None:
    ended = kit.program(DATA, MODEL, FUNCTION, TRIES, program="defines", style="tuple")
    assert ended.result.weights is not None, ended.log
    assert "skipped: cell-05.py, line 4 failed with AssertionError: as many test losses" in ended.log
    ended = kit.program(
        DATA, MODEL, FUNCTION + "\n    def unlearning(a, b, c, d): print(best)", TRIES, program="defines"
    )
    assert ended.error_class == "skipped-name"
    assert "'best' was not set: cell-05.py, line 5 failed with KeyError" in ended.result.verdict.message


def test_a_function_that_reads_what_the_kit_cannot_download_names_the_line(kit: Notebooks) -> None:
    ended = kit.program(DATA, MODEL, FUNCTION + "\n    def unlearning(a, b, c, d): return retrained", program="defines")
    assert ended.error_class == "skipped-name"
    assert "'retrained' was not set: cell-04.py, line 11 failed with" in ended.result.verdict.message


def test_other_pictures_are_not_taken_for_the_kits(notebooks: Notebooks, split: Path) -> None:
    ended = notebooks.program(
        "import torchvision\nt = torchvision.datasets.CIFAR10('.', download=True)",
        "def unlearning(net, r, f, v): pass",
        program="defines",
    )
    assert ended.result.weights == (split / "original_model.safetensors").read_bytes()
    assert "skipped: cell-02.py, line 2" in ended.log
