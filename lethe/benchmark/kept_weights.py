"""The weights of a method's first runs, kept where the benchmark asks for metrics of capture level 4."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.benchmark.store import Unit, write_whole
from lethe.evaluation.model_outputs import read_probed_references
from lethe.evaluation.original_models import ORIGINAL, read_integer_buffers
from lethe.evaluation.probes.split_probes import SplitProbes, stored_models


def keep_weights(
    unit: Unit, run: int, weights: bytes, *, split_dir: Path, integer_buffers: Mapping[str, Tensor] | None
) -> None:
    """Keep the weights of a run, a safetensors file.

    integer_buffers: of the run's own original model, where it has one. As in an evaluation, they are never the run's.
    """
    given = read_integer_buffers(split_dir / ORIGINAL) if integer_buffers is None else dict(integer_buffers)
    write_whole(_file(unit, run), safetensors.torch.save(safetensors.torch.load(weights) | given))


def probed_runs(unit: Unit, split_dir: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of level 4 of a method's first runs: of as many as references were probed.

    Raises DamagedSplit naming a file of the split.
    """
    n_models = len(read_probed_references(split_dir)["retrained"]["weight_norm"])
    states = [safetensors.torch.load_file(_file(unit, run)) for run in range(n_models)]
    return SplitProbes.load(split_dir).arrays(states, stored_models(split_dir, "retrained", n_models))


def _file(unit: Unit, run: int) -> Path:
    return unit.folder / f"weights-{run:06d}.safetensors"
