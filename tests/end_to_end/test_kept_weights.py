"""A competition that keeps weights, through a real instance: metrics of level 4 are those of the offline probes."""

import json

import pytest
import safetensors.torch
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.client.api import JsonObject
from lethe.evaluation.shard_outputs import ShardOutputs
from server.evaluations.results import is_weights
from server.maintenance import retention
from server.storage import Storage
from tests.end_to_end.conftest import (
    ONE_STEP,
    Instance,
    competition_toml,
    open_competition,
    shards_of,
    wait_for_end,
    wait_until,
)
from worker.evaluation.run_results import read_kept_weights

pytestmark = pytest.mark.slow

SLUG, K = "kept", 2
METRICS = ("relearn_time", "residual_knowledge", "weight_distance")
REPORT = f"[report]\nkeep_weights = {K}\nmetrics = {json.dumps(['klom', *METRICS])}\n"


@pytest.fixture(scope="module")
def instance(empty_instance: Instance) -> Instance:
    """One run a shard: the runs whose weights are kept are of two shards."""
    open_competition(empty_instance, competition_toml(slug=SLUG, n=3, shard=1) + REPORT)
    return empty_instance


@pytest.fixture(scope="module")
def submission(instance: Instance, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("code") / "one_step.py"
    path.write_text(ONE_STEP)
    client = instance.participant("kim")
    ended = wait_for_end(client, client.submit(SLUG, path))
    assert ended["stage"] == "scored", ended
    return str(ended["id"])


def computed_metrics(instance: Instance, submission: str) -> dict[str, JsonObject]:
    """Return a submission's metrics by id, once all are computed."""
    rows: list[JsonObject] = []

    def computed() -> bool:
        rows[:] = instance.organiser.get(f"/submissions/{submission}/metrics")["metrics"]
        return bool(rows) and not any(row["waiting"] for row in rows)

    wait_until(computed)
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def measured(instance: Instance, submission: str) -> dict[str, JsonObject]:
    return computed_metrics(instance, submission)


@pytest.fixture(scope="module")
def storage(instance: Instance) -> Storage:
    return Storage(instance.settings.resolved_storage_url)


def weights_files(storage: Storage) -> list[str]:
    return sorted(filter(is_weights, storage.keys("evaluations")))


def test_values_are_those_of_the_offline_probes(instance, submission, measured, storage, tmp_path):
    with instance.database.read() as session:
        given = [
            (shard, ShardOutputs.from_bytes(storage.read_verified(shard.result_key or "", shard.result_sha256 or "")))
            for shard in shards_of(session, submission)
        ]
    states = read_kept_weights(storage, given)
    assert len(states) == K
    for number, state in enumerate(states):
        safetensors.torch.save_file(state, tmp_path / f"model-{number}.safetensors")
    split_dir = storage.local_folder(f"splits/{SLUG}/public")
    words = ["evaluate", "--split", str(split_dir), "--models", str(tmp_path), "--probes", str(K), "--json"]
    offline = CliRunner().invoke(build_app(), [*words, *(word for name in METRICS for word in ("-m", name))])
    assert offline.exit_code == 0, offline.output
    for name, found in json.loads(offline.output)["metrics"].items():
        row = measured[name]
        assert row["not_computed"] == ""
        assert row["value"] == found["result"]["value"], name
        assert row["oracle"] == found["oracle"]["value"], name
        assert row["original"] == found["original"]["value"], name
        assert row["table"] == found["result"]["table"], name
    assert measured["klom"]["value"] is not None


def test_weights_of_the_first_runs_alone_are_kept_and_not_collected(instance, measured, storage):
    kept = weights_files(storage)
    assert [key.rpartition("/")[2] for key in kept] == [
        f"runs-{run:06d}-attempt-1-weights.safetensors" for run in range(K)
    ]
    garbage = retention.collect(instance.database, storage, keep_hours=-1, delete=False)
    folder = kept[0].rpartition("/")[0]
    assert [found.file.key for found in garbage if found.file.key.startswith(folder)] == []


def test_missing_weights_are_a_sentence_and_the_other_metrics_stay(instance, submission, measured, storage):
    kept = {key: storage.read(key) for key in weights_files(storage)}
    try:
        for key in kept:
            storage.remove(key)
        instance.organiser.post(f"/competitions/{SLUG}/metrics/recompute", {"only_stale": False})
        found = computed_metrics(instance, submission)
    finally:  # the other tests' weights, in whichever order they come
        for key, data in kept.items():
            storage.write(key, data)
    assert found["klom"]["value"] == measured["klom"]["value"]
    for name in METRICS:
        assert "no longer stored" in found[name]["not_computed"]
        assert "evaluate it once more" in found[name]["not_computed"]
