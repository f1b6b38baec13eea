"""Records a network's weights after every optimizer step, and compares them with stored ones, whole or in short.

In short are every trajectory's settings, and eight projections of its weights at some steps: `stored.json` and
`stored.npz`, written by `python -m tests.golden.trajectories DIR --record` from the full ones; their sources stand with
each setting. `results.json` is what that comparison found, from which docs/methods is made.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tests.golden.trajectories.frame import flat
from tests.golden.trajectories.recipes import Stored

TOLERANCE = 1e-9
FOLDER = Path(__file__).parent
USED = ("source", "constants", "labels", "labels_drawn", "wrong_labels", "second_phase", "settled")
STEPS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233)


@dataclass
class Trace:
    """Weights and statistics after each step. settled: as they are just before the next step, not after this one."""

    net: nn.Module
    settled: bool = False
    weights: list[np.ndarray] = field(default_factory=list)
    statistics: list[np.ndarray] = field(default_factory=list)

    def __enter__(self) -> "Trace":
        self.hooks = (register_optimizer_step_pre_hook(self.before), register_optimizer_step_post_hook(self.after))
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self.hooks:
            hook.remove()
        self.final_weights, self.final_statistics = flat(self.net)
        if self.settled and self.weights:
            self.weights[-1] = self.final_weights

    def before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.settled and self.weights and self.concerns(optimizer):
            self.weights[-1] = flat(self.net)[0]

    def after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.concerns(optimizer):
            weights, statistics = flat(self.net)
            self.weights.append(weights)
            self.statistics.append(statistics)

    def concerns(self, optimizer: torch.optim.Optimizer) -> bool:
        trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return any(id(parameter) in trained for parameter in self.net.parameters())


def projection(size: int, n: int = 8) -> np.ndarray:
    """Return the matrix whose products with a weight vector are stored for every step: [size, n]."""
    return np.random.default_rng(99).standard_normal((size, n)) / np.sqrt(size)


@dataclass(frozen=True)
class Difference:
    """first: the first step (1-based) that differs, None where all agree; final: the largest at the end.

    steps: how many were compared. largest: over all of them and the end.
    """

    first: int | None
    final: float
    steps: int
    largest: float


def compare(golden: dict[str, np.ndarray], trace: Trace, tolerance: float = TOLERANCE) -> Difference:
    """Compare a trace with a stored trajectory.

    A step that only one of them has counts as different; so does an end that differs after equal steps.
    """
    digests = golden.get("digest/weights", np.empty((0, 8)))
    offs = [
        _step_difference(golden, digests, trace, step) for step in range(1, min(len(digests), len(trace.weights)) + 1)
    ]
    final = max(
        _largest(golden["final/weights"], trace.final_weights),
        _largest(golden["final/buffers"], trace.final_statistics),
    )
    first = next((step for step, off in enumerate(offs, 1) if not off <= tolerance), None)
    if first is None and (len(digests) != len(trace.weights) or not final <= tolerance):
        first = len(offs) + 1
    return Difference(first, final, len(offs), max([*offs, final]))


def _step_difference(golden: dict[str, np.ndarray], digests: np.ndarray, trace: Trace, step: int) -> float:
    weights, key = trace.weights[step - 1], f"step{step:04d}"
    if f"{key}/weights" in golden:
        return _largest(golden[f"{key}/weights"], weights)
    return _largest(digests[step - 1], weights @ projection(len(weights)))


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest absolute difference; equal infinities and two not-a-numbers differ by nothing."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    off = np.where(same, 0.0, np.abs(one - other))
    return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))


@dataclass(frozen=True)
class Digest:
    """n_steps: how many there were; steps and weights: some of them, with projections [k, 8]; final: the last ones."""

    n_steps: int
    steps: np.ndarray
    weights: np.ndarray
    final: np.ndarray


def shorten(golden: Mapping[str, np.ndarray]) -> Digest:
    weights = golden.get("digest/weights", np.empty((0, 8)))
    steps = np.array([step for step in STEPS if step <= len(weights)], dtype=np.int64)
    final = golden["final/weights"] @ projection(golden["final/weights"].size)
    return Digest(len(weights), steps, weights[steps - 1], np.append(final, golden["final/buffers"].sum()))


def largest_difference(digest: Digest, trace: Trace) -> float:
    """Return by how much projections differ at most; infinity where the numbers of steps do."""
    if len(trace.weights) != digest.n_steps:
        return float("inf")
    matrix = projection(trace.final_weights.size)
    own = [trace.weights[step - 1] @ matrix for step in digest.steps]
    ends = np.append(trace.final_weights @ matrix, trace.final_statistics.sum())
    offs = [np.abs(mine - theirs).max() for mine, theirs in zip(own, digest.weights, strict=True)]
    return float(np.max([*offs, np.abs(ends - digest.final).max()]))


def read_stored() -> list[tuple[Stored, Digest]]:
    """Return all that is stored."""
    arrays = np.load(FOLDER / "stored.npz")
    described: dict[str, Any] = json.loads((FOLDER / "stored.json").read_text("utf-8"))
    found = []
    for name, info in described.items():
        method, setting = name.split("/")
        steps, weights, final = (arrays[f"{name}/{part}"] for part in ("steps", "weights", "final"))
        found.append((Stored(method, setting, info), Digest(info["n_steps"], steps, weights, final)))
    return found


def write_stored(found: list[tuple[Stored, Digest]]) -> None:
    described = {
        f"{stored.method}/{stored.setting}": {key: stored.info[key] for key in USED if key in stored.info}
        | {"n_steps": digest.n_steps}
        for stored, digest in found
    }
    lines = (f"{json.dumps(name)}: {json.dumps(info)}" for name, info in described.items())
    (FOLDER / "stored.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    parts = ("steps", "weights", "final")
    arrays = {
        f"{stored.method}/{stored.setting}/{part}": getattr(digest, part) for stored, digest in found for part in parts
    }
    np.savez_compressed(FOLDER / "stored.npz", **arrays)
