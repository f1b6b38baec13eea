"""A dataset: noisy stripes, across or along."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lethe.data.datasets.image_dataset import ImageDataset


def open_stripes(options: Mapping[str, Any]) -> ImageDataset:
    """Return images uint8 [n, 1, 8, 8] of two classes. options: `n`, the number of images, and `seed`."""
    n, random = int(options.get("n", 400)), np.random.default_rng(int(options.get("seed", 0)))
    labels = np.arange(n) % 2
    across = np.broadcast_to((np.arange(8) % 2 * 160)[:, None], (8, 8))
    images = np.where(labels[:, None, None], across.T, across) + random.integers(0, 96, (n, 8, 8))
    return ImageDataset(
        images=images[:, None].astype(np.uint8),
        labels=labels,
        persons=np.arange(n),
        n_classes=2,
        input_scale=1 / 255,  # the network sees images * input_scale + input_shift
    )
