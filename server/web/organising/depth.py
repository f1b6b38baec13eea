"""One submission in depth: what its runs gave beside what the retrained models give.

Everything is read from the stored outputs; what is shown as `separation` is the Kolmogorov-Smirnov distance between
the two sets of models, a plain measure that orders the forget examples from easy to hard. The score's own epsilons
are the scorer's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from server.models.competition import Split
from server.models.evaluation import Shard
from server.storage import Storage

Array = npt.NDArray[np.float64]
EXAMPLES = ("hardest", "median", "easiest")


@dataclass(frozen=True)
class Outputs:
    """Of n models on S forget examples: confidences [n, S], accuracies [n], and wall times [n] in seconds."""

    confidences: Array
    retain_accuracy: Array
    test_accuracy: Array
    wall_time_s: Array | None = None


@dataclass(frozen=True)
class Example:
    """One forget example: how far the two sets of models lie apart on it."""

    name: str
    index: int
    separation: float


@dataclass(frozen=True)
class Depth:
    unlearned: Outputs
    retrained: Outputs
    separation: Array  # [S]
    examples: tuple[Example, ...]

    def rows(self, name: str) -> list[dict[str, object]]:
        """Return one quantity of both sets of models, for a figure. name: an example's, or that of an accuracy."""
        pairs = (("unlearned", self.unlearned), ("retrained", self.retrained))
        if name in EXAMPLES:
            index = next(example.index for example in self.examples if example.name == name)
            return [_row(value, models) for models, o in pairs for value in o.confidences[:, index]]
        if name == "time":
            times = self.unlearned.wall_time_s
            return [_row(value, "runs") for value in times] if times is not None else []
        if name == "separation":
            return [_row(value, "forget examples") for value in self.separation]
        return [_row(value, models) for models, outputs in pairs for value in getattr(outputs, f"{name}_accuracy")]


def depth_of(storage: Storage, split: Split, slug: str, shards: Sequence[Shard]) -> Depth | None:
    """Return the outputs of both sets of models, or None while they are not all stored."""
    keys = tuple((shard.result_key or "", shard.result_sha256 or "") for shard in shards)
    retrained_key = f"splits/{slug}/{split.visibility}/hidden/retrained/outputs.safetensors"
    if not keys or not storage.exists(retrained_key):
        return None
    return _read(storage, keys, retrained_key, split.manifest_sha256 or "")


@lru_cache(maxsize=8)
def _read(storage: Storage, keys: tuple[tuple[str, str], ...], retrained_key: str, _manifest: str) -> Depth:
    pieces = [load(storage.read_verified(key, sha256)) for key, sha256 in keys]
    unlearned = Outputs(
        **{name: np.concatenate([piece[name] for piece in pieces]) for name in Outputs.__dataclass_fields__}
    )
    arrays = load(storage.read(retrained_key))
    names = ("confidences", "retain_accuracy", "test_accuracy")
    retrained = Outputs(**{name: arrays[name] for name in names})
    separation = separations(unlearned.confidences, retrained.confidences)
    order = np.argsort(-separation, kind="stable")
    places = (0, len(order) // 2, len(order) - 1)
    examples = tuple(
        Example(name, int(order[place]), float(separation[order[place]]))
        for name, place in zip(EXAMPLES, places, strict=True)
    )
    return Depth(unlearned, retrained, separation, examples)


def separations(unlearned: Array, retrained: Array) -> Array:
    """Return the Kolmogorov-Smirnov distance of each column: [n, S] and [m, S] to [S], in 0..1."""
    return np.array([_distance(u, r) for u, r in zip(unlearned.T, retrained.T, strict=True)])


def _distance(u: Array, r: Array) -> float:
    points = np.concatenate((u, r))
    below_u = np.searchsorted(np.sort(u), points, side="right") / len(u)
    below_r = np.searchsorted(np.sort(r), points, side="right") / len(r)
    return float(np.abs(below_u - below_r).max())


def _row(value: float, models: str) -> dict[str, object]:
    return {"value": round(float(value), 6), "models": models}
