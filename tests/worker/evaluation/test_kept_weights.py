"""The weights of a submission's first runs: which are kept, with which integers, and how they are read again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from lethe.errors import HostFault
from lethe.evaluation.model_outputs import ORIGINAL
from lethe.evaluation.shard_outputs import ShardOutputs
from server.evaluations.results import weights_key
from server.models.evaluation import Shard
from server.storage import Storage
from worker.evaluation.run_results import KeptWeights, read_kept_weights

OUTPUTS = ShardOutputs(np.zeros((2, 3)), np.ones(2), np.ones(2), wall_time_s=np.ones(2))
KEYS = [f"evaluations/e/runs-{run:06d}-attempt-1.safetensors" for run in (0, 2, 4)]


def model(value: float, count: int = 7) -> dict[str, torch.Tensor]:
    return {"layer.weight": torch.full((2, 3), value), "layer.count": torch.tensor(count)}


@pytest.fixture
def split_dir(tmp_path: Path) -> Path:
    path = tmp_path / "split" / ORIGINAL
    path.parent.mkdir(parents=True)
    safetensors.torch.save_file(model(0.0), path)
    return tmp_path / "split"


def kept(split_dir: Path, first_run: int, *, n_kept: int = 3) -> KeptWeights:
    weights = KeptWeights(n_kept, split_dir)
    for run in (first_run, first_run + 1):
        weights.add(run, safetensors.torch.save(model(float(run), count=99)))
    return weights


def stored(storage: Storage, split_dir: Path, *keys: str) -> list[tuple[Shard, ShardOutputs]]:
    shards: list[tuple[Shard, ShardOutputs]] = []
    for number, key in enumerate(keys):
        data = kept(split_dir, 2 * number).to_bytes()
        sha256 = None if data is None else storage.write(weights_key(key), data)
        outputs = ShardOutputs.from_bytes(replace(OUTPUTS, weights_sha256=sha256).to_bytes())
        shards.append((Shard(id=number, result_key=key), outputs))
    return shards


def test_first_runs_are_read_in_order_from_all_shards(split_dir: Path, tmp_path: Path) -> None:
    storage = Storage((tmp_path / "storage").as_uri())
    states = read_kept_weights(storage, stored(storage, split_dir, *KEYS))
    assert [float(state["layer.weight"][0, 0]) for state in states] == [0.0, 1.0, 2.0]
    assert [state["layer.count"].item() for state in states] == [7, 7, 7], "integers are the original model's"
    assert list(storage.keys("evaluations")) == [weights_key(key) for key in KEYS[:2]]


def test_run_with_an_original_of_its_own_has_its_integers(split_dir: Path) -> None:
    weights = KeptWeights(1, split_dir)
    weights.add(0, safetensors.torch.save(model(1.0, count=99)), integer_buffers={"layer.count": torch.tensor(5)})
    assert weights.states[0]["layer.count"].item() == 5


def test_nothing_is_kept_unless_the_competition_says_so(split_dir: Path) -> None:
    assert kept(split_dir, 0, n_kept=0).to_bytes() is None
    arrays: dict[str, Any] = OUTPUTS.arrays()
    assert OUTPUTS.to_bytes() == safetensors.numpy.save(arrays), "outputs without weights are the bytes that they were"


def test_damaged_weights_are_named(split_dir: Path, tmp_path: Path) -> None:
    storage = Storage((tmp_path / "storage").as_uri())
    shards = stored(storage, split_dir, KEYS[0])
    data = bytearray(storage.read(weights_key(KEYS[0])))
    data[-1] ^= 1
    storage.write(weights_key(KEYS[0]), bytes(data))
    with pytest.raises(HostFault, match="runs-000000-attempt-1-weights"):
        read_kept_weights(storage, shards)
