"""A network: one narrow hidden layer."""

from torch import nn


def build(input_shape: tuple[int, int, int], n_classes: int, *, width: int = 8) -> nn.Module:
    """Return the untrained network. input_shape: (channels, height, width) of the images."""
    channels, height, columns = input_shape
    return nn.Sequential(
        nn.Flatten(), nn.Linear(channels * height * columns, width), nn.ReLU(), nn.Linear(width, n_classes)
    )
