"""What a remote worker sends and gets: arrays, weights and files; and when two outputs count as the same."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load, save
from sqlalchemy import select

from server.config import get_settings
from server.models.competition import Competition, Split
from server.models.evaluation import Shard
from server.storage import get_storage
from server.workers.verification import find_difference
from tests.server.workers.conftest import (
    FILES,
    N_FORGET,
    Hosted,
    RemoteWorker,
    outputs,
    sha256,
    store_splits,
    submit,
    to_runs,
)
from tests.support.instance import GOOD_CODE
from tests.support.s3 import S3Server, s3_server

N_TEST, N_CLASSES = 6, 3
RETRAINED = "hidden/retrained/outputs.safetensors"


def captured(n: int) -> dict[str, Any]:
    """Return arrays of n models: those of levels 1 to 3, and of each other form that language models store."""
    return {
        "forget_correct": np.ones((n, N_FORGET), bool),
        "forget_loss": np.full((n, N_FORGET), 0.5, np.float32),
        "test_loss": np.full((n, N_TEST), 0.5, np.float32),
        "forget_logits": np.zeros((n, N_FORGET, N_CLASSES), np.float16),
        "confusion": np.ones((n, 3, N_CLASSES, N_CLASSES), np.int32),
        "forget_answer_loss": np.full((n, N_FORGET), 0.5),
        "forget_answer_text": np.full((n, N_FORGET, 16), ord("a"), np.uint8),
    }


@pytest.fixture
def capturing(hosted: Hosted) -> Hosted:
    """A competition whose splits store arrays for metrics."""
    assert RETRAINED in FILES
    with hosted.server.database.write() as session:
        for split in session.scalars(select(Split)):
            folder = f"splits/digits/{split.visibility}"
            models = {
                "confidences": np.zeros((4, N_FORGET)),
                "retain_accuracy": np.ones(4),
                "test_accuracy": np.ones(4),
            }
            data = save(models | captured(4))
            hosted.server.storage.write(f"{folder}/{RETRAINED}", data)
            manifest = json.loads(hosted.server.storage.read(f"{folder}/manifest.json"))
            manifest["evaluation"] = {"batch_size": 256, "capture": [1, 2, 3]}
            manifest["files"][RETRAINED] = {"sha256": sha256(data), "size": len(data)}
            split.manifest_sha256 = hosted.server.storage.write(
                f"{folder}/manifest.json", json.dumps(manifest).encode()
            )
    return hosted


def test_captured_arrays_are_kept_with_the_result(capturing: Hosted) -> None:
    submit(capturing)
    worker = capturing.worker()
    to_runs(worker)
    sent = worker.step("PUT", "result", content=outputs(2, **captured(2)))
    assert sent.json() == {"held": True}
    with capturing.server.database.read() as session:
        shard = session.scalars(select(Shard).where(Shard.result_key.is_not(None))).one()
    kept = load(capturing.server.storage.read_verified(shard.result_key or "", shard.result_sha256 or ""))
    assert set(captured(2)) <= set(kept)
    assert kept["forget_loss"].dtype == np.float32


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"forget_loss": None}, "forget_loss"),
    ({"retain_loss": np.zeros((2, 6), np.float32)}, "retain_loss"),
    ({"test_loss": np.zeros((2, N_TEST + 1), np.float32)}, "test_loss"),
    ({"forget_logits": np.zeros((2, N_FORGET, N_CLASSES), np.float32)}, "forget_logits as float16"),
    ({"forget_loss": np.full((2, N_FORGET), np.inf, np.float32)}, "not finite"),
    ({"forget_loss": np.full((2, N_FORGET), -1.0, np.float32)}, "a loss below 0"),
    ({"confusion": np.full((2, 3, N_CLASSES, N_CLASSES), -1, np.int32)}, "a count below 0"),
    ({"forget_correct": np.ones((2, N_FORGET), np.int32)}, "forget_correct as bool"),
)


def test_captured_arrays_of_another_form_are_refused_by_name(capturing: Hosted) -> None:
    submit(capturing)
    worker = capturing.worker()
    to_runs(worker)
    for changes, named in WRONG:
        refused = worker.step("PUT", "result", content=outputs(2, **(captured(2) | changes)))
        assert refused.status_code == 422, changes
        assert named in refused.text
    assert list(capturing.server.storage.keys("evaluations")) == []


def test_split_without_arrays_takes_none(hosted: Hosted) -> None:
    submit(hosted)
    worker = hosted.worker()
    to_runs(worker)
    assert worker.step("PUT", "result", content=outputs(2, **captured(2))).status_code == 422


N_KEPT, N_RUNS = 1, 2
ORIGINAL = {"layer.weight": np.zeros((2, 3), np.float32), "layer.count": np.zeros((), np.int64)}


def weights(n_models: int = N_KEPT, **changes: Any) -> bytes:
    arrays: dict[str, Any] = {name: np.stack([array] * n_models) for name, array in ORIGINAL.items()}
    return save(arrays | changes)


def keep(hosted: Hosted, n_kept: int) -> None:
    for visibility in ("public", "private"):
        hosted.server.storage.write(f"splits/digits/{visibility}/visible/original_model.safetensors", save(ORIGINAL))
    with hosted.server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": {"keep_weights": n_kept}}


def sent_weights(hosted: Hosted) -> list[str]:
    return list(hosted.server.storage.keys("evaluations"))


def test_weights_are_kept_beside_the_result(hosted: Hosted) -> None:
    keep(hosted, N_KEPT)
    submit(hosted)
    worker = hosted.worker(trusted=True)
    shard = to_runs(worker)
    assert (shard["n_runs"], shard["competition"]["keep_weights"]) == (N_RUNS, N_KEPT)
    sent = worker.step("PUT", "weights", content=weights())
    assert sent.status_code == 204, sent.text
    (key,) = sent_weights(hosted)
    assert worker.step("PUT", "result", content=outputs(N_RUNS)).json() == {"held": True}
    assert load(hosted.server.storage.read(key))["layer.weight"].shape == (N_KEPT, 2, 3)
    with hosted.server.database.read() as session:
        results = [shard.result_key for shard in session.scalars(select(Shard)) if shard.result_key]
    assert [result.startswith(key.removesuffix("-weights.safetensors")) for result in results] == [True]


def test_weights_of_another_form_are_refused_and_the_shard_stays(hosted: Hosted) -> None:
    keep(hosted, N_KEPT)
    submit(hosted)
    worker = hosted.worker(trusted=True)
    to_runs(worker)
    for content, says in (
        (b"not a file", "cannot be read"),
        (weights(2), "layer.count is ('I64', (2,)) and must be ('I64', (1,))"),
        (weights(**{"layer.weight": np.zeros((1, 3, 3), np.float32)}), "layer.weight is"),
        (weights(**{"layer.weight": np.zeros((1, 2, 3))}), "layer.weight is ('F64'"),
        (weights(more=np.zeros(1)), "more is"),
        (weights() + b"more", "cannot be read"),
    ):
        refused = worker.step("PUT", "weights", content=content)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "weights")
        assert says in refused.json()["detail"]
    assert sent_weights(hosted) == []
    assert worker.finish().json() == {"held": True}


def test_weights_may_be_as_large_as_the_models_and_no_larger(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ORIGINAL, "layer.weight", np.zeros((1000, 500), np.float32))
    keep(hosted, N_KEPT)
    submit(hosted)
    worker = hosted.worker(trusted=True)
    to_runs(worker)
    refused = worker.step("PUT", "weights", content=bytes(len(save(ORIGINAL)) + (1 << 20) + 1))
    assert refused.status_code == 413
    assert "What is sent of this shard has at most" in refused.json()["detail"]
    sent = worker.step("PUT", "weights", content=weights())
    assert sent.status_code == 204, "2 MB, more than other requests may have"


def test_weights_count_only_of_a_shard_that_is_held_and_has_some_to_keep(hosted: Hosted) -> None:
    keep(hosted, 0)
    submit(hosted)
    worker = hosted.worker(trusted=True)
    to_runs(worker)
    assert worker.step("PUT", "weights", content=weights()).status_code == 409
    keep(hosted, N_KEPT)
    worker.finish()
    before = sent_weights(hosted)
    worker.step("PUT", "weights", content=weights())
    assert sent_weights(hosted) == before


def test_untrusted_worker_gets_no_shard_whose_weights_are_kept(hosted: Hosted) -> None:
    keep(hosted, N_KEPT)
    submit(hosted)
    worker = hosted.worker()
    assert to_runs(worker)["first_run"] == N_RUNS
    worker.finish()
    assert worker.claim() is None


Arrays = dict[str, NDArray[np.generic]]


def result(**changes: NDArray[np.generic]) -> Arrays:
    arrays: Arrays = {
        "confidences": np.zeros((2, 5)),
        "retain_accuracy": np.full(2, 0.9),
        "class_accuracy": np.array([[[0.5, np.nan]] * 2] * 2, dtype=np.float32),
        "forget_correct": np.ones((2, 100), dtype=np.bool_),
        "forget_logits": np.full((2, 5, 3), 20.0, dtype=np.float32),
    }
    return arrays | changes


def altered(name: str, place: tuple[int | slice, ...], value: float | bool) -> Arrays:
    array = result()[name].copy()
    array[place] = value
    return result(**{name: array})


@pytest.mark.parametrize(
    ("there", "array"),
    [
        (altered("confidences", (1, 3), 0.011), "confidences"),
        (altered("confidences", (1, 3), np.nan), "confidences"),
        (altered("retain_accuracy", (1,), 0.92), "retain_accuracy"),
        (altered("class_accuracy", (0, 0, 1), 0.5), "class_accuracy"),
        (altered("forget_correct", (0, slice(0, 3)), False), "forget_correct"),
        (altered("forget_logits", (1,), 20.5), "forget_logits"),
        (result(confidences=np.zeros((2, 4))), "confidences"),
        (result(confidences=np.zeros((2, 5), dtype=np.float32)), "confidences"),
        ({name: array for name, array in result().items() if name != "forget_logits"}, "names of arrays"),
    ],
)
def test_array_beyond_the_tolerance_is_named(there: Arrays, array: str) -> None:
    found = find_difference(there, result(), tolerance=0.01)
    assert found is not None
    assert found.array == array


def test_array_within_the_tolerance_is_the_same() -> None:
    assert find_difference(result(), result(), tolerance=0.0) is None
    for there in (
        altered("confidences", (1, 3), 0.009),
        altered("retain_accuracy", (1,), 0.905),
        altered("forget_correct", (0, 7), False),
        altered("forget_logits", (1,), 20.1),
    ):
        assert find_difference(there, result(), tolerance=0.01) is None


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["server", "storage"])
def worker(request, hosted, s3, monkeypatch):
    """A worker that holds a shard of runs of an instance on S3."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LETHE_STORAGE_URL", f"{s3.url}/{request.param}")
    monkeypatch.setenv("LETHE_WORKER_DOWNLOADS", request.param)
    get_settings.cache_clear()
    get_storage.cache_clear()
    hosted.server.storage = get_storage()
    store_splits(hosted.server, hosted.competition)
    submit(hosted)
    worker = hosted.worker()
    to_runs(worker)
    return worker


def test_file_comes_whole_from_where_the_setting_says(worker: RemoteWorker, request: pytest.FixtureRequest) -> None:
    answer = worker.file(worker.held["content_sha256"])
    if get_settings().worker_downloads == "server":
        assert (answer.status_code, answer.content) == (200, GOOD_CODE)
        return
    assert answer.status_code == 307
    link = answer.headers["Location"]
    assert "Signature" in link or "signature" in link
    assert httpx.get(link, trust_env=False).content == GOOD_CODE
    assert worker.finish().json() == {"held": True}
