"""Folders of image files as one uint8 array on disk: decoded once, then memory-mapped."""

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from pydantic import Field

from lethe.data.datasets.image_dataset import Options
from lethe.data.datasets.registry import decoded_folder
from lethe.data.errors import InvalidDataset
from lethe.data.files import read_json, write_json
from lethe.text_files import as_on_disk

VERSION = 2  # of how pictures are decoded: another one decodes again
DECODERS = 8
OPAQUE = 255
DECODED_AT_ONCE = 1024
MAX_DECODED_BYTES = 32 << 30  # on the disk of whoever reads the dataset
MAX_PIXELS = 50_000_000  # of one picture, of which DECODERS are in memory at a time
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # others start programs or are seldom looked at


class PictureOptions(Options):
    """Options of every adapter that reads image files."""

    root: Path
    size: int = Field(default=32, ge=1, le=1024, description="images are scaled to size x size pixels")
    channels: int = Field(default=3, description="3: colour, 1: grey")
    cache: Path | None = Field(default=None, description="folder for the decoded array; default: the user's cache")


@dataclass(frozen=True)
class Decoded:
    """images: uint8 [n, C, size, size], memory-mapped. notes: how many were changed beyond size and colour, and how."""

    images: NDArray[np.uint8]
    notes: tuple[str, ...]


def decode_pictures(paths: Sequence[Path], options: PictureOptions) -> Decoded:
    """Return the images from a cache that is made when it is missing.

    The cache belongs to these files (name, size, time of change) and options. Raises InvalidDataset naming a file that
    is no image.
    """
    if options.channels not in (1, 3):
        raise InvalidDataset(f"dataset.options.channels must be 1 or 3, was {options.channels}")
    if not paths:
        raise InvalidDataset(f"{options.root} has no images where this adapter expects them")
    default = decoded_folder(options.root) or Path(platformdirs.user_cache_dir("lethe")) / "datasets"
    cache = options.cache or default
    shape = (len(paths), options.channels, options.size, options.size)
    if math.prod(shape) > MAX_DECODED_BYTES:
        raise InvalidDataset(f"{len(paths)} images of {options.size} pixels take more than {MAX_DECODED_BYTES} bytes")
    array_path = cache / f"{_key(paths, options)}.npy"
    if not array_path.exists() or not array_path.with_suffix(".json").exists():
        _decode_all(paths, shape, array_path)
    images: NDArray[np.uint8] = np.load(array_path, mmap_mode="r")
    return Decoded(images, tuple(read_json(array_path.with_suffix(".json"))["notes"]))


def _key(paths: Sequence[Path], options: PictureOptions) -> str:
    digest = hashlib.sha256(json.dumps([VERSION, options.size, options.channels]).encode())
    for path in paths:
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def _decode_all(paths: Sequence[Path], shape: tuple[int, int, int, int], array_path: Path) -> None:
    array_path.parent.mkdir(parents=True, exist_ok=True)
    part = array_path.with_name(f".{array_path.name}.{os.getpid()}.part")
    changed: Counter[str] = Counter()
    try:
        images = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)
        with ThreadPoolExecutor(DECODERS) as pool:
            for start in range(0, len(paths), DECODED_AT_ONCE):
                block = paths[start : start + DECODED_AT_ONCE]
                decoded = list(pool.map(partial(decode_picture, size=shape[2], channels=shape[1]), block))
                images[start : start + len(block)] = [pixels for pixels, _ in decoded]
                changed.update(note for _, notes in decoded for note in notes)
        images.flush()
        notes = [f"{count} of {len(paths)} images {note}" for note, count in sorted(changed.items())]
        write_json(array_path.with_suffix(".json"), {"pictures": len(paths), "first": str(paths[0]), "notes": notes})
        part.replace(array_path)
    finally:
        part.unlink(missing_ok=True)


def decode_picture(path: Path, *, size: int, channels: int) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Return one image, uint8 [C, size, size], and what was changed of it. Raises InvalidDataset naming the file."""
    try:
        with Image.open(path, formats=FORMATS) as file:
            if file.width * file.height > MAX_PIXELS:
                raise InvalidDataset(f"{path} has {file.width} x {file.height} pixels; at most {MAX_PIXELS} are read")
            if _is_deep(file):
                raise InvalidDataset(
                    f"{path} has more than 8 bits a pixel (mode {file.mode}): convert it to 8 bits first"
                )
            picture, notes = _flat(file)
            picture = picture.convert("L" if channels == 1 else "RGB")
            if picture.size != (size, size):
                picture = picture.resize((size, size), Image.Resampling.BILINEAR)
            pixels = np.asarray(picture, dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InvalidDataset(f"{path} cannot be read as an image: {error}") from error
    return (pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))), notes


def _is_deep(file: Image.Image) -> bool:
    """Return whether channels have more than 8 bits: Pillow would cut those of colour silently."""
    raw = [str(tile[3]) for tile in getattr(file, "tile", ())]
    return file.mode.startswith(("I", "F")) or any("16" in mode for mode in raw)


def _flat(file: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """Return a picture as a viewer shows it: first frame, upright, on white; and what that changed."""
    notes = []
    if getattr(file, "n_frames", 1) > 1:
        notes.append("have several frames, of which the first is taken")
    picture: Image.Image = file
    if file.getexif().get(ExifTags.Base.Orientation, 1) not in (0, 1):
        picture = ImageOps.exif_transpose(file)
        notes.append("are turned as their camera's note on orientation says")
    if picture.has_transparency_data:
        seen = picture.convert("RGBA")
        if seen.getchannel("A").getextrema() != (OPAQUE, OPAQUE):
            white = Image.new("RGBA", seen.size, (OPAQUE,) * 4)
            picture = Image.alpha_composite(white, seen)
            notes.append("are transparent somewhere, and are laid on white")
    return picture, tuple(notes)


def need(path: Path, what: str) -> Path:
    """Return `path` if it exists, as its disk spells it; else raise InvalidDataset saying what belongs there."""
    path = as_on_disk(path)
    if not path.exists():
        raise InvalidDataset(f"{path} does not exist. Put there: {what}")
    return path


def number_names(names: Sequence[str]) -> NDArray[np.int64]:
    """Return a number for each name: its place among the different names in order."""
    numbers: NDArray[np.int64] = np.unique(np.asarray(names), return_inverse=True)[1].astype(np.int64)
    return numbers
