"""Serves the competition's pictures from memory: reading one of them decodes nothing.

The files are there as well. Only what torchvision.io and PIL return for them comes from the split's own tensors.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torchvision
from torch import Tensor
from torchvision.io import ImageReadMode

from lethe.runtime.data_loaders import GuestData

INPUT = Path("/kaggle/input")
SUFFIX = ".png"
READ_MODES = {1: (ImageReadMode.UNCHANGED, ImageReadMode.GRAY), 3: (ImageReadMode.UNCHANGED, ImageReadMode.RGB)}


class Pictures:
    """The pictures below /kaggle/input, by path."""

    def __init__(self, data: GuestData) -> None:
        self._sets = [part for part in (data.retain, data.forget, data.validation) if hasattr(part, "stored")]
        self._folders = tuple(f"{folder}/images/" for folder in INPUT.glob("*"))
        self._places: dict[str, tuple[Any, int]] = {}

    def find(self, path: Any) -> Tensor | None:
        """Return a picture, uint8 [C, H, W], or None for a file that is none of them."""
        if not isinstance(path, str | os.PathLike):
            return None
        name = os.path.abspath(os.fspath(path))  # noqa: PTH100 - a text is enough, and this is called for each picture
        folder = next((folder for folder in self._folders if name.startswith(folder)), None)
        if folder is None:
            return None
        if not self._places:
            self._places = dict(self._all())
        place = self._places.get(name[len(folder) :].replace("/", "-"))
        return None if place is None else place[0].stored.images[place[1]]

    def _all(self) -> Iterator[tuple[str, tuple[Any, int]]]:
        for part in self._sets:
            for position, name in enumerate(part.names):
                yield f"{name}{SUFFIX}", (part, position)

    def install(self) -> None:
        """Let torchvision and PIL ask for pictures here first."""
        images: Any = importlib.import_module("PIL.Image")
        open_file = images.open

        def opened(fp: Any, *arguments: Any, **options: Any) -> Any:
            picture = self.find(fp)
            if picture is None or arguments or options:
                return open_file(fp, *arguments, **options)
            image = images.fromarray(picture.permute(1, 2, 0).squeeze(-1).contiguous().numpy())
            image.format, image.filename = "PNG", os.fspath(fp)
            return image

        images.open = opened
        for name in ("read_image", "decode_image"):
            self._serve(name)

    def _serve(self, name: str) -> None:
        read = getattr(torchvision.io, name)

        def reading(source: Any, mode: Any = ImageReadMode.UNCHANGED, *arguments: Any, **options: Any) -> Tensor:
            picture = None if isinstance(source, Tensor) else self.find(source)
            mode = ImageReadMode[mode.upper()] if isinstance(mode, str) else mode
            if picture is None or mode not in READ_MODES[len(picture)]:
                found: Tensor = read(source, mode, *arguments, **options)
                return found
            channels, _height, width = picture.shape
            decoded = picture.permute(
                1, 2, 0
            ).contiguous()  # in memory as a decoder leaves it: what follows is as exact
            return decoded.as_strided(picture.shape, (1, width * channels, channels))

        reading.__name__ = name
        for module in (torchvision.io, sys.modules["torchvision.io.image"]):
            setattr(module, name, reading)
