"""Adapters by the name that a competition file uses."""

from collections.abc import Callable, Mapping
from typing import Any

from lethe.competition.file import Dataset
from lethe.data.datasets.arrays import open_femnist, open_numpy
from lethe.data.datasets.classic import (
    FASHION_PIXELS,
    MNIST_PIXELS,
    cifar100_adapter,
    mnist_adapter,
    open_cifar10,
    open_svhn,
)
from lethe.data.datasets.digits import open_digits
from lethe.data.datasets.face_folders import open_casia_surf, open_celeba, open_utkface
from lethe.data.datasets.faces import open_faces
from lethe.data.datasets.folder import open_folder, open_kaggle
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.roots import on_a_server, placed
from lethe.data.errors import InvalidDataset

Adapter = Callable[[Mapping[str, Any]], ImageDataset]

ADAPTERS: dict[str, Adapter] = {
    "casia-surf": open_casia_surf,
    "celeba": open_celeba,
    "cifar10": open_cifar10,
    "cifar20": cifar100_adapter(coarse=True),
    "cifar100": cifar100_adapter(coarse=False),
    "digits": open_digits,
    "faces": open_faces,
    "fashion-mnist": mnist_adapter("FashionMNIST", FASHION_PIXELS),
    "femnist": open_femnist,
    "folder": open_folder,
    "kaggle": open_kaggle,
    "mnist": mnist_adapter("MNIST", MNIST_PIXELS),
    "numpy": open_numpy,
    "svhn": open_svhn,
    "utkface": open_utkface,
}


def open_dataset(dataset: Dataset) -> ImageDataset:
    """Return the dataset that the competition file names. Raises InvalidDataset saying what is wrong or missing."""
    adapter = ADAPTERS.get(dataset.name)
    if adapter is None:
        raise InvalidDataset(f"dataset.name {dataset.name!r} is not known: allowed are {', '.join(sorted(ADAPTERS))}")
    options = placed(dataset.options)
    try:
        return adapter(options).checked()
    except InvalidDataset as error:
        if not on_a_server():
            raise
        # It names files by their place on this host, which is nobody's business.
        folder, root = str(options.get("root", "")), str(dataset.options.get("root", ""))
        detail = error.detail.replace(folder, root) if folder else error.detail
        raise InvalidDataset(detail, violations=error.violations) from error
