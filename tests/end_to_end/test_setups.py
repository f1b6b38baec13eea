"""Setup reuse-n-n through a real instance: every run starts from its own original model."""

from pathlib import Path

import numpy as np
import pytest

from lethe.client.api import LetheClient
from lethe.evaluation.manifest import Manifest, verify_split
from lethe.evaluation.model_outputs import read_outputs
from lethe.evaluation.shard_outputs import ShardOutputs, join
from server.storage import Storage
from tests.end_to_end.conftest import Instance, competition_toml, open_competition, shards_of, wait_for_end
from tests.support.images import OWN_ORDER

pytestmark = pytest.mark.slow

SLUG, RUNS = "originals", 3
SECTION, REUSE_N_N = "[scoring]\n", '[scoring]\nsetup = "reuse-n-n"\n'
MLP = 'name = "mlp"\noptions = { hidden = [16] }'
SHUFFLED = f"name = \"module\"\n[network.options]\nsource = '''{OWN_ORDER}'''"


@pytest.fixture(scope="module")
def instance(empty_instance: Instance) -> Instance:
    """The originals differ in their integers too."""
    open_competition(
        empty_instance, competition_toml(slug=SLUG, n=RUNS, shard=2).replace(MLP, SHUFFLED).replace(SECTION, REUSE_N_N)
    )
    return empty_instance


@pytest.fixture(scope="module")
def client(instance: Instance) -> LetheClient:
    return instance.participant("own")


@pytest.fixture(scope="module")
def split_dir(instance: Instance) -> Path:
    return Storage(instance.settings.resolved_storage_url).local_folder(f"splits/{SLUG}/public")


def load_outputs(instance: Instance, submission_id: str) -> ShardOutputs:
    """Return what a submission's runs gave, in their order."""
    storage = Storage(instance.settings.resolved_storage_url)
    with instance.database.read() as session:
        keys = [(shard.result_key or "", shard.result_sha256 or "") for shard in shards_of(session, submission_id)]
    return join([ShardOutputs.from_bytes(storage.read_verified(key, sha256)) for key, sha256 in keys])


def test_the_split_holds_as_many_originals_as_runs(instance: Instance, split_dir: Path) -> None:
    assert Manifest.read(split_dir).setup == "reuse-n-n"
    assert len(read_outputs(split_dir, "originals")) == RUNS
    assert verify_split(split_dir) == []


def test_a_net_returned_unchanged_gives_each_original_back(instance, client, split_dir, tmp_path):
    path = tmp_path / "unchanged.py"
    path.write_text("def unlearning(net, retain, forget, validation):\n    return net\n")
    ended = wait_for_end(client, client.submit(SLUG, path))
    assert ended["stage"] == "scored", ended
    originals, unlearned = read_outputs(split_dir, "originals"), load_outputs(instance, ended["id"])
    assert np.array_equal(unlearned.confidences, originals.confidences)
    assert np.array_equal(unlearned.test_accuracy, originals.test_accuracy)
    assert len(np.unique(unlearned.confidences[:, 0])) == RUNS


def test_no_original_is_left_where_submissions_are_staged(instance: Instance) -> None:
    assert list((instance.settings.scratch / "stage").rglob("*.safetensors")) == []
