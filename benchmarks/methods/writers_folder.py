"""Writes the pictures of `writers-tuned.toml`: MNIST's digits with the persons who wrote them, as a folder.

python -m benchmarks.methods.writers_folder mnist.npz mnist_writers.npz data/writers

mnist.npz: `x_train`, `y_train`, `x_test`, `y_test`. mnist_writers.npz: `train_writer` [60000], of QMNIST's labels
(Yadav & Bottou 2019, arXiv 1905.10498), in MNIST's order. 100 writers with 24 pictures each to draw training sets from,
and MNIST's first 1,000 test pictures, which others wrote.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from PIL import Image

WRITERS, PICTURES, TESTS = 100, 24, 1000


def main() -> None:
    """Write the pictures and images.csv with path, label, person and test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("mnist", "writers", "folder"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    digits, writer = dict(np.load(options.mnist)), np.load(options.writers)["train_writer"]
    (options.folder / "images").mkdir(parents=True)
    often = [person for person in np.unique(writer) if np.count_nonzero(writer == person) >= PICTURES][:WRITERS]
    rows = [("train", index, person, 0) for person in often for index in np.flatnonzero(writer == person)[:PICTURES]]
    rows += [("test", index, f"test-{index}", 1) for index in range(TESTS)]
    with (options.folder / "images.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "person", "test"])
        for part, index, person, is_test in rows:
            path = f"images/{part}-{index}.png"
            Image.fromarray(digits[f"x_{part}"][index]).save(options.folder / path)
            table.writerow([path, digits[f"y_{part}"][index], person, is_test])


if __name__ == "__main__":
    main()
