"""Generated answers as arrays: UTF-8 bytes, as outputs store them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FORGET_ANSWERS = "forget_answer_text"  # the array of outputs that holds a model's answers to the forget questions


def texts_as_array(texts: Sequence[str], *, width: int) -> npt.NDArray[np.uint8]:
    """Return the texts as UTF-8 bytes, shape (n, width), cut off or padded with 0."""
    rows = [text.replace("\0", "").encode()[:width].ljust(width, b"\0") for text in texts]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(texts), width)


def texts_from_array(array: npt.NDArray[np.uint8]) -> list[str]:
    """Return what `texts_as_array` was given; a character that was cut through is left out."""
    return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in array]
