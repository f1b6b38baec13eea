"""Images of one NumPy archive."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from lethe.data.datasets.image_dataset import Adapter, ImageDataset, Options, own_person_each
from lethe.data.datasets.image_files import need
from lethe.data.errors import InvalidDataset


class DatasetOptions(Options):
    root: Path


def open_new_dataset(options: Mapping[str, Any]) -> ImageDataset:
    """Return the images of root/images.npz: `images`, uint8 [n, channels, height, width], and `labels`, integers [n].

    Raises InvalidDataset, naming the file, where it is missing or holds something else.
    """
    path = need(DatasetOptions.parse(options).root / "images.npz", "an archive of the arrays images and labels")
    try:
        with np.load(path, allow_pickle=False) as stored:
            images, labels = stored["images"], stored["labels"].astype(np.int64)
    except (BadZipFile, KeyError, OSError, ValueError) as error:
        raise InvalidDataset(f"{path} must be a NumPy archive of the arrays images and labels: {error}") from error
    return ImageDataset(
        images=images,
        labels=labels,
        persons=own_person_each(len(labels)),
        n_classes=int(labels.max(initial=0)) + 1,
        input_scale=1 / 255,  # a network sees images * input_scale + input_shift
    )


ADAPTERS: dict[str, Adapter] = {"new_dataset": open_new_dataset}
