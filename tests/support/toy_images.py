"""Images without content, of some classes and persons, for tests of how they are divided."""

import numpy as np

from lethe.data.datasets.image_dataset import ImageDataset


def toy(n: int = 100, *, classes: int = 4, persons: int = 25, is_test: bool = False) -> ImageDataset:
    positions = np.arange(n)
    return ImageDataset(
        images=np.zeros((n, 1, 2, 2), np.uint8),
        labels=positions % classes,
        persons=positions % persons,
        n_classes=classes,
        is_test=positions >= 80 if is_test else None,
    )
