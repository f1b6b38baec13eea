"""scikit-learn's 1,797 scanned digits, with noise, so that a network has something to memorise."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from lethe.data.datasets.image_dataset import Adapter, ImageDataset, Options, own_person_each
from lethe.data.seeds import numpy_generator

LOWEST, HIGHEST = -5.0, 6.0  # standardised pixels plus noise; what lies beyond is clipped


class DigitsOptions(Options):
    noise: float = Field(default=0.0, ge=0, description="standard deviation of the added noise, in pixel deviations")
    seed: int = Field(default=0, ge=0)


def open_digits(options: Mapping[str, Any]) -> ImageDataset:
    """Return the digits: standardised over all pixels, noise added, stored in 256 steps."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - half a second that other datasets need not pay

    parsed = DigitsOptions.parse(options)
    digits = load_digits()
    pixels = digits.images.astype(np.float64)
    pixels = (pixels - pixels.mean()) / pixels.std()
    pixels += parsed.noise * numpy_generator(parsed.seed).standard_normal(pixels.shape)
    scale = (HIGHEST - LOWEST) / 255
    images = np.clip(np.rint((pixels - LOWEST) / scale), 0, 255).astype(np.uint8)
    return ImageDataset(
        images=images[:, None],
        labels=digits.target.astype(np.int64),
        persons=own_person_each(len(images)),
        n_classes=10,
        input_scale=scale,
        input_shift=LOWEST,
        class_names=tuple(str(digit) for digit in range(10)),
    )


ADAPTERS: dict[str, Adapter] = {"digits": open_digits}
