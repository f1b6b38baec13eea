"""How long training takes, roughly: from the operations of one image alone, so that no clock decides."""

from collections.abc import Sequence
from itertools import pairwise

from lethe.competition.file import Training

RATES = {"cpu": 2e10, "cuda": 1e14}  # operations a second that one process trains with, as a rule of thumb
BACKWARD = 3  # a step costs its forward pass three times
STEP_S = 2e-4  # that a step takes beyond its arithmetic: what small networks mostly do
FASTEST_STEP_S = 5e-6  # of it, what is left where code is compiled or many models are stacked

Shape = tuple[int, int, int]


def arithmetic_seconds(operations: float, recipe: Training, *, n_images: int, device: str = "cpu") -> float:
    """Return what one model's training takes of arithmetic. operations: of one image's forward pass."""
    return BACKWARD * operations * n_images * recipe.epochs / RATES[device]


def retraining_seconds(operations: float, recipe: Training, *, n_images: int, device: str = "cpu") -> float:
    """Return about how long one model trains, its steps' own time included."""
    return _with_steps(STEP_S, operations, recipe, n_images=n_images, device=device)


def fastest_retraining_seconds(operations: float, recipe: Training, *, n_images: int, device: str = "cpu") -> float:
    """Return about how long the exact recipe takes at least, in any code: arithmetic, and little for a step."""
    return _with_steps(FASTEST_STEP_S, operations, recipe, n_images=n_images, device=device)


def _with_steps(step_s: float, operations: float, recipe: Training, *, n_images: int, device: str) -> float:
    steps = recipe.epochs * -(-n_images // recipe.batch_size)
    return steps * step_s + arithmetic_seconds(operations, recipe, n_images=n_images, device=device)


def mlp_operations(shape: Shape, n_classes: int, hidden: Sequence[int] = (64,)) -> int:
    """Return the operations of the network `mlp` for one image."""
    channels, height, width = shape
    return 2 * sum(a * b for a, b in pairwise([channels * height * width, *hidden, n_classes]))


def small_cnn_operations(shape: Shape, n_classes: int, widths: Sequence[int] = (8, 16, 32)) -> int:
    """Return the operations of the network `small_cnn` for one image: each layer halves the image after it."""
    channels, height, width = shape
    total = 0
    for before, after in pairwise([channels, *widths]):
        total += 2 * 9 * before * after * height * width
        height, width = (height // 2, width // 2) if min(height, width) >= 2 else (height, width)
    return total + 2 * widths[-1] * n_classes
