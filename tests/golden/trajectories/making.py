"""Makes the common frame: random patterns as images, and a network that was trained on them for three epochs."""

from functools import cache

import numpy as np
import torch
from torch import nn

from tests.golden.trajectories.frame import Frame, Net
from tests.golden.trajectories.run import as_stored

N_CLASSES, SIDE, CHANNELS = 6, 12, 3
N_TRAIN, N_FORGET, N_VAL = 240, 48, 48


@cache
def made_frame() -> Frame:
    """Return the frame that the stored trajectories were made in."""
    with as_stored():
        arrays = make_data()
        net = train_original(arrays)
    return Frame(arrays | {f"original/{name}": tensor.numpy() for name, tensor in net.state_dict().items()})


def smooth(draws: np.random.Generator, n: int, grid: int = 4) -> np.ndarray:
    coarse = torch.tensor(draws.standard_normal((n, CHANNELS, grid, grid)))
    return nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic", align_corners=True).numpy()


def make_data() -> dict[str, np.ndarray]:
    draws = np.random.default_rng(20240501)
    prototypes = smooth(draws, N_CLASSES)
    labels = np.array([5] * N_FORGET + [i % 5 for i in range(N_TRAIN - N_FORGET)])
    draws.shuffle(labels)
    val_labels = np.array([i % N_CLASSES for i in range(N_VAL)])

    def images(of: np.ndarray) -> np.ndarray:
        noise = smooth(draws, len(of), 5) + 0.25 * draws.standard_normal((len(of), CHANNELS, SIDE, SIDE))
        return (0.5 * (0.75 * prototypes[of] + noise)).astype(np.float32)

    train, val = images(labels), images(val_labels)
    chosen = draws.permutation(N_TRAIN)
    return {
        "train_images": train,
        "train_labels": labels,
        "val_images": val,
        "val_labels": val_labels,
        "random_forget": np.sort(chosen[:N_FORGET]),
        "random_retain": np.sort(chosen[N_FORGET:]),
        "class_forget": np.flatnonzero(labels == 5),
        "class_retain": np.flatnonzero(labels != 5),
    }


def train_original(arrays: dict[str, np.ndarray]) -> Net:
    images, labels = torch.tensor(arrays["train_images"].astype(np.float64)), torch.tensor(arrays["train_labels"])
    torch.manual_seed(7)
    net = Net(CHANNELS, (12, 32), 288, N_CLASSES)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    order = np.random.default_rng(11)
    net.train()
    for _ in range(3):
        for part in np.array_split(order.permutation(len(images)), 8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[part]), labels[part]).backward()
            optimizer.step()
    return net
