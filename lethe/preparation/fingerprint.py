"""What a split is made from, as data: the network, the recipe, its hash, the libraries."""

import hashlib
import json
import platform
from importlib import metadata
from typing import Any

import numpy as np
import safetensors
import torch

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import training_recipe
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import InvalidSplit
from lethe.networks.builders import build


def network_description(competition: CompetitionFile, dataset: ImageDataset) -> dict[str, Any]:
    """Return network.json's content. Raises InvalidSplit where the network cannot be built for these images."""
    description = {
        "name": competition.network.name,
        "options": dict(competition.network.options),
        "input_shape": list(dataset.input_shape),
        "n_classes": dataset.n_classes,
        "input_scale": dataset.input_scale,
        "input_shift": dataset.input_shift,
    }
    try:
        outputs = _outputs(description)
    except (ValueError, TypeError) as error:
        raise InvalidSplit(f"[network]: {error}") from error
    except Exception as error:  # an organiser's own module may raise anything, and networks fail on images too small
        raise InvalidSplit(f"[network]: {type(error).__name__}: {error}") from error
    if not isinstance(outputs, torch.Tensor) or outputs.shape != (2, dataset.n_classes):
        found = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise InvalidSplit(
            f"[network]: {description['name']} must give [images, {dataset.n_classes}] logits, in training too; "
            f"for two images it gives {found}"
        )
    return description


def _outputs(description: dict[str, Any]) -> object:
    """Return what the network gives for two black images while it is trained."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        outputs: object = build(description).train()(torch.zeros(2, *description["input_shape"]))
    return outputs


def fingerprint(competition: CompetitionFile, visibility: Visibility) -> str:
    """Return the hash of everything that decides what a split consists of."""
    text = json.dumps({"recipe": training_recipe(competition), "visibility": visibility}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def maker(competition: CompetitionFile, visibility: Visibility, *, device: str) -> str:
    """Return what an unfinished split is made from and by: recipe, kind of device, release of torch.

    Devices and releases of torch round differently: a split that another kind or release began is made again.
    """
    release = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    return f"{fingerprint(competition, visibility)} {device} torch {release}"


def library_versions() -> dict[str, str]:
    """Return what is installed. scikit-learn and torchvision take seconds to import, and often nothing else does."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": metadata.version("torchvision"),
        "numpy": np.__version__,
        "scikit-learn": metadata.version("scikit-learn"),
        "safetensors": safetensors.__version__,
        "machine": platform.machine(),
    }


def describe_version_change(before: dict[str, str], now: dict[str, str]) -> str:
    """Say which libraries are not those that the split's first files were made with; nothing where all are.

    The build, as in 0.26.0+cpu, is not part of every version that was written down.
    """
    changed = [
        f"{name} {before.get(name, 'unknown')} -> {version}"
        for name, version in now.items()
        if version not in (then := before.get(name, "unknown"), then.partition("+")[0])
    ]
    if not changed:
        return ""
    return f"libraries changed since this split was begun ({', '.join(changed)}); rebuilt files may differ in bits"
