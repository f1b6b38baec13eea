"""What a run starts from and what stays of it: its original model, and the weights of a submission's first runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.torch import load

from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors, sha256_of
from lethe.errors import HostFault
from lethe.evaluation.model_outputs import ORIGINAL
from lethe.evaluation.shard_outputs import ShardOutputs
from lethe.preparation.prepare import prepare_split
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from server.evaluations.results import weights_key
from server.models.evaluation import Shard, ShardKind
from server.storage import Storage
from tests.lethe.conftest import competition
from tests.support.leases import flip_a_byte
from worker.evaluation.run_results import KeptWeights, own_original, read_kept_weights
from worker.split_storage.local_splits import StoredArtefacts
from worker.split_storage.split_cache import SplitCache

OUTPUTS = ShardOutputs(np.zeros((2, 3)), np.ones(2), np.ones(2), wall_time_s=np.ones(2))
KEYS = [f"evaluations/e/runs-{run:06d}-attempt-1.safetensors" for run in (0, 2, 4)]


def model(value: float, count: int = 7) -> dict[str, torch.Tensor]:
    return {"layer.weight": torch.full((2, 3), value), "layer.count": torch.tensor(count)}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "storage"))


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


def test_first_runs_are_read_in_order_from_all_shards(split_dir: Path, storage: Storage) -> None:
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


def test_damaged_weights_are_named(split_dir: Path, storage: Storage) -> None:
    shards = stored(storage, split_dir, KEYS[0])
    flip_a_byte(Path(storage.local_folder(weights_key(KEYS[0]))), -1)
    with pytest.raises(HostFault, match="runs-000000-attempt-1-weights"):
        read_kept_weights(storage, shards)


MODELS = "hidden/originals/models-00000.safetensors"
KEY = "splits/small/public"


@pytest.fixture
def prepared(storage: Storage) -> Path:
    folder = storage.local_folder(KEY)
    prepare_split(competition(n_models=4, scoring={"setup": "reuse-n-n"}), "public", folder)
    return folder


@pytest.fixture
def context(storage: Storage, tmp_path: Path) -> Any:
    stage = tmp_path / "stage"
    stage.mkdir()
    artefacts = StoredArtefacts(storage, SplitCache(tmp_path / "cache", cap_bytes=1))
    return SimpleNamespace(artefacts=artefacts, stage_dir=stage)


def new_shard(prepared: Path, *, setup: str = "reuse-n-n", kind: ShardKind = ShardKind.RUNS) -> Any:
    return SimpleNamespace(
        competition=competition(n_models=4, scoring={"setup": setup}),
        kind=kind,
        split_key=KEY,
        manifest_sha256=sha256_of(prepared / "manifest.json"),
    )


def test_run_gets_its_own_original_which_is_removed_after(context: Any, prepared: Path) -> None:
    stacked = read_tensors(prepared / MODELS)
    for run in range(3):
        with own_original(context, new_shard(prepared), prepared, run=run) as path:
            assert path is not None
            assert list(context.stage_dir.iterdir()) == [path]
            found = load(path.read_bytes())
            assert all((found[name] == values[run]).all() for name, values in stacked.items())
        assert list(context.stage_dir.iterdir()) == []


def test_it_is_removed_when_the_run_fails(context: Any, prepared: Path) -> None:
    with pytest.raises(RuntimeError, match="failed"), own_original(context, new_shard(prepared), prepared, run=0):
        raise RuntimeError("failed")
    assert list(context.stage_dir.iterdir()) == []


def test_nothing_is_handed_over_where_all_runs_share_one(context: Any, prepared: Path) -> None:
    with own_original(context, new_shard(prepared, setup="reuse-n-1"), prepared, run=1) as path:
        assert path is None
    assert list(context.stage_dir.iterdir()) == []


def test_a_smoke_run_gets_the_samples_original_as_runs_get_theirs(context: Any, prepared: Path) -> None:
    (prepared / "sample").mkdir(exist_ok=True)
    sample = prepared / "sample" / ORIGINAL_MODEL
    sample.write_bytes(b"the sample's")
    with own_original(context, new_shard(prepared, kind=ShardKind.SMOKE), prepared, run=0) as path:
        assert path is not None
        assert path.parent == context.stage_dir
        assert path.read_bytes() == b"the sample's"
    assert list(context.stage_dir.iterdir()) == []


def test_a_damaged_file_of_models_is_refused(context: Any, prepared: Path) -> None:
    flip_a_byte(prepared / MODELS, -1)
    with (
        pytest.raises(DamagedSplit, match=r"models-00000.*wrong content"),
        own_original(context, new_shard(prepared), prepared, run=0),
    ):
        pytest.fail("handed over")
