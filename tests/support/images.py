"""Images without content, small PNG files, and the source of a network that reads pixels in an order of its own."""

import struct
import zlib

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


def png(side: int = 24, *, colour: int = 2) -> bytes:
    """Return a black PNG. colour: 0 is grey, 2 is RGB."""
    rows = b"".join(b"\0" + bytes(side * (3 if colour == 2 else 1)) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, colour, 0, 0, 0)
    made = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        made += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return made


def pets(n: int = 240) -> dict[str, bytes]:
    """Return files of two classes and forty persons, in folders."""
    return {f"pets/{('cat', 'dog')[i % 2]}/p{i % 40:02}/{i}.png": png() for i in range(n)}


SOURCE = """
import torch
from torch import nn

class Ordered(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("order", ORDER)

    def forward(self, x):
        return x.flatten(1)[:, self.order]

def build(input_shape, n_classes):
    n = input_shape[0] * input_shape[1] * input_shape[2]
    return nn.Sequential(Ordered(n), nn.Linear(n, 16), nn.ReLU(), nn.Linear(16, n_classes))
"""
IN_ORDER = SOURCE.replace("ORDER", "torch.arange(n)")
OWN_ORDER = SOURCE.replace("ORDER", "torch.randperm(n)")
