"""The stored trajectories in short: every one's settings, and eight projections of its weights at some steps.

`stored.json` and `stored.npz` are written by `python -m tests.golden.trajectories DIR --record` from the full ones;
their sources stand with each setting. `results.json` is what that comparison found, from which docs/methods is made.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.trajectories.recipes import Stored
from tests.golden.trajectories.trace import Trace, projection

FOLDER = Path(__file__).parent
USED = ("source", "constants", "labels", "labels_drawn", "wrong_labels", "second_phase", "settled")
STEPS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233)


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


def read() -> list[tuple[Stored, Digest]]:
    """Return all that is stored."""
    arrays = np.load(FOLDER / "stored.npz")
    described: dict[str, Any] = json.loads((FOLDER / "stored.json").read_text("utf-8"))
    found = []
    for name, info in described.items():
        method, setting = name.split("/")
        steps, weights, final = (arrays[f"{name}/{part}"] for part in ("steps", "weights", "final"))
        found.append((Stored(method, setting, info), Digest(info["n_steps"], steps, weights, final)))
    return found


def write(found: list[tuple[Stored, Digest]]) -> None:
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
