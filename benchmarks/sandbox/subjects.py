"""What is measured: two networks and a few submissions."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from lethe.networks import builders

NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "options": {"hidden": [16]}, "input_shape": [1, 8, 8], "n_classes": 10},
    "resnet18": {"name": "resnet18", "options": {"stem": "small"}, "input_shape": [3, 32, 32], "n_classes": 10},
}
_TRAINING = """
import time

import torch


def train(net, loader, steps):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.001)
    done = 0
    while True:
        for batch in loader:
            if done == steps:
                return
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"]).backward()
            optimiser.step()
            done += 1


def unlearning(net, retain, forget, validation):
    small = sum(p.numel() for p in net.parameters()) < 100_000
    steps = STEPS
    train(net, retain, 1)
    began = time.process_time()
    train(net, retain, steps)
    SAY
"""
# A tenth of a second of a processor, whatever the machine.
_TENTH = """
import time


def unlearning(net, retain, forget, validation):
    began = time.process_time()
    while time.process_time() - began < 0.1:
        pass
"""
SUBMISSIONS = {
    "short": _TRAINING.replace("STEPS", "4 if small else 0").replace("SAY", ""),
    "training": _TRAINING.replace("STEPS", "1000 if small else 2").replace("SAY", "print(time.process_time() - began)"),
    "tenth": _TENTH,
    "endless": "def unlearning(net, retain, forget, validation):\n    while True:\n        pass\n",
    "forks": "import os\n\n\ndef unlearning(net, retain, forget, validation):\n    while True:\n"
    "        try:\n            os.fork()\n        except OSError:\n            pass\n",
}


def write_split(folder: Path, network: str, *, examples: int = 64) -> Path:
    """Write a split's visible folder with random images."""
    folder.mkdir(parents=True)
    shown = {**NETWORKS[network], "input_scale": 1 / 255, "input_shift": 0.0}
    (folder / "network.json").write_text(json.dumps(shown), encoding="utf-8")
    torch.manual_seed(0)
    state = {name: value.contiguous() for name, value in builders.build(shown).state_dict().items()}
    save_file(state, folder / "original_model.safetensors")
    for name in ("retain", "forget", "validation"):
        images = torch.randint(0, 256, (examples, *shown["input_shape"]), dtype=torch.uint8)
        ids = torch.arange(examples)
        tensors = {"images": images, "labels": ids % 10, "ids": ids, "persons": ids // 2}
        save_file(tensors, folder / f"{name}.safetensors")
    return folder
