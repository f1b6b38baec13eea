"""Writes pictures of ten classes of CIFAR-100: of `classes-tuned.toml` as a folder, of `forget-sets.toml` as arrays.

python -m benchmarks.methods.classes_folder cifar100.zip data/classes
python -m benchmarks.methods.classes_folder cifar100.zip data/classes16 --arrays 16

cifar100.zip: the first pictures of each class of CIFAR-100 (Krizhevsky 2009) in their order, 200 of its training and 50
of its test set, below each other in one picture of 32 columns, `train/CCC.webp` and `test/CCC.webp`; the classes' names
in `classes.json`.
"""

import argparse
import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.methods.writers_folder import Row, write

SIDE = 32
# One of each of ten superclasses.
CLASSES = ("apple", "baby", "bear", "beaver", "bed", "bicycle", "cloud", "fox", "hamster", "orchid")


def rows(cifar: Path) -> Iterable[Row]:
    """Yield the pictures of the ten classes; the label is the place in CLASSES."""
    with zipfile.ZipFile(cifar) as archive:
        names = json.loads(archive.read("classes.json"))
        for part in ("train", "test"):
            for label, name in enumerate(CLASSES):
                strip = Image.open(io.BytesIO(archive.read(f"{part}/{names.index(name):03d}.webp"))).convert("RGB")
                for index, picture in enumerate(np.asarray(strip).reshape(-1, SIDE, SIDE, 3)):
                    yield f"{part}-{name}-{index}", picture, label, "", int(part == "test")


def write_arrays(folder: Path, pictures: Iterable[Row], side: int) -> None:
    """Write images.npy [n, side, side, 3], labels.npy and is_test.npy, as the dataset `numpy` reads them."""
    found = [
        (np.asarray(Image.fromarray(picture).resize((side, side))), label, bool(is_test))
        for _, picture, label, _, is_test in pictures
    ]
    folder.mkdir(parents=True)
    for name, column in zip(("images", "labels", "is_test"), zip(*found, strict=True), strict=True):
        np.save(folder / f"{name}.npy", np.array(column))


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("cifar", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--arrays", type=int, metavar="SIDE", help="NumPy files, pictures of SIDE x SIDE pixels")
    options = parser.parse_args()
    if options.arrays:
        write_arrays(options.folder, rows(options.cifar), options.arrays)
    else:
        write(options.folder, rows(options.cifar))


if __name__ == "__main__":
    main()
