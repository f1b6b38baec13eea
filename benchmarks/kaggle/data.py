"""A small split in Kaggle's form: drawn faces of 32 x 32, bytes as inputs, a ResNet-18 with 10 classes."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from lethe.data.datasets.faces import open_faces
from lethe.networks import builders

NETWORK = {
    "name": "resnet18",
    "options": {},
    "input_shape": [3, 32, 32],
    "n_classes": 10,
    "input_scale": 1.0,
    "input_shift": 0.0,
}
SIZES = {"retain": 64, "forget": 32, "validation": 32}


def write_split(folder: Path, sizes: Mapping[str, int] = SIZES) -> Path:
    """Write a split's visible folder, and return it. sizes: how many pictures each set has."""
    folder.mkdir(parents=True)
    (folder / "network.json").write_text(json.dumps(NETWORK), encoding="utf-8")
    torch.manual_seed(0)
    state = {name: value.contiguous() for name, value in builders.build(NETWORK).state_dict().items()}
    save_file(state, folder / "original_model.safetensors")
    faces = open_faces({"persons": 10 + sum(sizes.values()) // 4, "images_per_person": 6})
    order = np.random.default_rng(0).permutation(len(faces.labels))
    first = 0
    for name, size in sizes.items():
        chosen = np.sort(order[first : first + size])
        first += size
        tensors = {
            "images": torch.from_numpy(faces.images[chosen]),
            "labels": torch.from_numpy(faces.labels[chosen]),
            "ids": torch.from_numpy(chosen.astype(np.int64)),
            "persons": torch.from_numpy(faces.persons[chosen]),
        }
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{name}.safetensors")
    return folder
