"""Writes the pictures of `writers-tuned.toml`: MNIST's digits with the persons who wrote them, as a folder.

python -m benchmarks.methods.writers_folder mnist.npz mnist_writers.npz data/writers

mnist.npz: `x_train`, `y_train`, `x_test`, `y_test`. mnist_writers.npz: `train_writer` [60000], of QMNIST's labels
(Yadav & Bottou 2019, arXiv 1905.10498), in MNIST's order. 100 writers with 24 pictures each to draw training sets from,
and MNIST's first 1,000 test pictures, which others wrote.
"""

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WRITERS, PICTURES, TESTS = 100, 24, 1000
Row = tuple[str, NDArray[np.uint8], int, str, int]  # name, picture, label, person, whether it is of the test set


def rows(mnist: Path, writers: Path) -> Iterable[Row]:
    """Yield training pictures by their writers, then the test pictures."""
    digits, writer = dict(np.load(mnist)), np.load(writers)["train_writer"]
    often = [person for person in np.unique(writer) if np.count_nonzero(writer == person) >= PICTURES][:WRITERS]
    drawn = [("train", index, str(person)) for person in often for index in np.flatnonzero(writer == person)[:PICTURES]]
    for part, index, person in [*drawn, *(("test", index, f"test-{index}") for index in range(TESTS))]:
        label = int(digits[f"y_{part}"][index])
        yield f"{part}-{index}", digits[f"x_{part}"][index], label, person, int(part == "test")


def write(folder: Path, pictures: Iterable[Row]) -> None:
    """Write the pictures, and images.csv with path, label, person and test."""
    (folder / "images").mkdir(parents=True)
    with (folder / "images.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "person", "test"])
        for name, picture, *rest in pictures:
            path = f"images/{name}.png"
            Image.fromarray(picture).save(folder / path)
            table.writerow([path, *rest])


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("mnist", "writers", "folder"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    write(options.folder, rows(options.mnist, options.writers))


if __name__ == "__main__":
    main()
