"""The trigger of a backdoor: a white square in the lower right corner of an image.

Source: Gu et al. 2017 (BadNets, arXiv:1708.06733); as a forget set: Goel et al. 2024 (arXiv:2402.14015).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE_SHARE = 8  # the square's side is this part of the image's shorter side
LEAST_SIDE = 2  # pixels
WHITE = 255


def with_trigger(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return copies of the images with the trigger; all other pixels stay. images: uint8 [n, C, H, W]."""
    side = max(LEAST_SIDE, -(-min(images.shape[2:]) // SIDE_SHARE))
    stamped = np.array(images, dtype=np.uint8)
    stamped[:, :, -side:, -side:] = WHITE
    return stamped
