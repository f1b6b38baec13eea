"""Pictures of the public sample for the overview page: some of its forget set, some of its retain set."""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lethe.data.stored_sets import StoredSet
from server.starter_kit.service import PICTURED_SETS, picture_key
from server.storage import Storage

COLUMNS, ROWS = 8, 2
SIDE_PX = 64  # of one picture, at least
GAP_PX = 4


def store_pictures(storage: Storage, sample_dir: Path, slug: str) -> None:
    """Keep one sheet of pictures of each pictured set of the sample in storage."""
    for name in PICTURED_SETS:
        images = StoredSet.read(sample_dir / f"{name}.safetensors").images.numpy()
        if images.dtype == np.uint8:  # rows of a table are no pictures
            storage.write(picture_key(slug, name), make_sheet(images))


def make_sheet(images: NDArray[np.uint8]) -> bytes:
    """Return a PNG of up to sixteen of the images, spread evenly over all of them.

    images: uint8 [n, C, H, W], n >= 1, C = 1 or 3 (of any other number, the first is drawn in grey). Between them the
    sheet is transparent.
    """
    shown = images[np.linspace(0, len(images) - 1, min(len(images), COLUMNS * ROWS)).round().astype(int)]
    factor = max(1, -(-SIDE_PX // max(shown.shape[2:])))
    tiles = [_tile(image, factor) for image in shown]
    width, height = tiles[0].size
    columns = min(COLUMNS, len(tiles))
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGBA", (columns * (width + GAP_PX) - GAP_PX, rows * (height + GAP_PX) - GAP_PX))
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (number % columns * (width + GAP_PX), number // columns * (height + GAP_PX)))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _tile(image: NDArray[np.uint8], factor: int) -> Image.Image:
    pixels = np.ascontiguousarray(image.transpose(1, 2, 0)) if len(image) == 3 else image[0]
    tile = Image.fromarray(pixels)
    return tile.resize((tile.width * factor, tile.height * factor), Image.Resampling.NEAREST).convert("RGBA")
