"""Writes difficulty.npy beside a benchmark's arrays: how far models memorise each image (Feldman and Zhang 2020).

python -m benchmarks.methods.memorisation examples/benchmarks/forget-sets.toml [--models 200]

The first cell's network and recipe are trained on as many images as the cell has, drawn at random from all that may be
trained on. An image's memorisation is the mean confidence in its class of the models that were trained on it, less that
of the others.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from lethe.benchmark.plan import read_plan
from lethe.data.datasets.registry import open_dataset
from lethe.networks.builders import to_inputs
from lethe.preparation.fingerprint import network_description
from lethe.training.trainer import TrainingJob


def main() -> None:
    """Train the models and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--models", type=int, default=200)
    options = parser.parse_args()
    competition = read_plan(options.file).cells[0].competition
    dataset = open_dataset(competition.dataset)
    network = network_description(competition, dataset)
    pool = np.arange(len(dataset)) if dataset.is_test is None else np.flatnonzero(~dataset.is_test)
    images, labels = torch.from_numpy(np.array(dataset.images[pool])), torch.from_numpy(dataset.labels[pool])
    inputs = to_inputs(images, network)
    sums, counts = np.zeros((2, len(pool))), np.zeros((2, len(pool)))
    for seed in range(options.models):
        drawn = np.random.default_rng(seed).permutation(len(pool))[: competition.splits.train_size]
        job = TrainingJob.on_device(network, competition.training, images[drawn], labels[drawn], device="cpu")
        training = job.start(seed)
        for _ in range(competition.training.epochs):
            training.run_epoch()
        with torch.inference_mode():
            sure = training.net.eval()(inputs).softmax(1)[torch.arange(len(pool)), labels].numpy()
        is_in = np.isin(np.arange(len(pool)), drawn)
        for side in (0, 1):
            sums[side] += np.where(is_in == side, sure, 0.0)
            counts[side] += is_in == side
    difficulty = np.zeros(len(dataset))
    difficulty[pool] = sums[1] / counts[1] - sums[0] / counts[0]
    np.save(Path(competition.dataset.options["root"]) / "difficulty.npy", difficulty)


if __name__ == "__main__":
    main()
