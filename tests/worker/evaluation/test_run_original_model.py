"""Which original model a run is handed, for how long, and that a damaged one is not."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load

from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors, sha256_of
from lethe.preparation.prepare import prepare_split
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from server.models.evaluation import ShardKind
from server.storage import Storage
from tests.lethe.conftest import competition
from worker.evaluation.run_results import own_original
from worker.split_storage.local_splits import StoredArtefacts
from worker.split_storage.split_cache import SplitCache

MODELS = "hidden/originals/models-00000.safetensors"
KEY = "splits/small/public"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "storage"))


@pytest.fixture
def split_dir(storage: Storage) -> Path:
    folder = storage.local_folder(KEY)
    prepare_split(competition(n_models=4, scoring={"setup": "reuse-n-n"}), "public", folder)
    return folder


@pytest.fixture
def context(storage: Storage, tmp_path: Path) -> Any:
    stage = tmp_path / "stage"
    stage.mkdir()
    artefacts = StoredArtefacts(storage, SplitCache(tmp_path / "cache", cap_bytes=1))
    return SimpleNamespace(artefacts=artefacts, stage_dir=stage)


def new_shard(split_dir: Path, *, setup: str = "reuse-n-n", kind: ShardKind = ShardKind.RUNS) -> Any:
    return SimpleNamespace(
        competition=competition(n_models=4, scoring={"setup": setup}),
        kind=kind,
        split_key=KEY,
        manifest_sha256=sha256_of(split_dir / "manifest.json"),
    )


def test_run_gets_its_own_original_which_is_removed_after(context: Any, split_dir: Path) -> None:
    stacked = read_tensors(split_dir / MODELS)
    for run in range(3):
        with own_original(context, new_shard(split_dir), split_dir, run=run) as path:
            assert path is not None
            assert list(context.stage_dir.iterdir()) == [path]
            found = load(path.read_bytes())
            assert all((found[name] == values[run]).all() for name, values in stacked.items())
        assert list(context.stage_dir.iterdir()) == []


def test_it_is_removed_when_the_run_fails(context: Any, split_dir: Path) -> None:
    with pytest.raises(RuntimeError, match="failed"), own_original(context, new_shard(split_dir), split_dir, run=0):
        raise RuntimeError("failed")
    assert list(context.stage_dir.iterdir()) == []


def test_nothing_is_handed_over_where_all_runs_share_one(context: Any, split_dir: Path) -> None:
    with own_original(context, new_shard(split_dir, setup="reuse-n-1"), split_dir, run=1) as path:
        assert path is None
    assert list(context.stage_dir.iterdir()) == []


def test_a_smoke_run_gets_the_samples_original_as_runs_get_theirs(context: Any, split_dir: Path) -> None:
    (split_dir / "sample").mkdir(exist_ok=True)
    sample = split_dir / "sample" / ORIGINAL_MODEL
    sample.write_bytes(b"the sample's")
    with own_original(context, new_shard(split_dir, kind=ShardKind.SMOKE), split_dir, run=0) as path:
        assert path is not None
        assert path.parent == context.stage_dir
        assert path.read_bytes() == b"the sample's"
    assert list(context.stage_dir.iterdir()) == []


def test_a_damaged_file_of_models_is_refused(context: Any, split_dir: Path) -> None:
    content = (split_dir / MODELS).read_bytes()
    (split_dir / MODELS).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with (
        pytest.raises(DamagedSplit, match=r"models-00000.*wrong content"),
        own_original(context, new_shard(split_dir), split_dir, run=0),
    ):
        pytest.fail("handed over")
