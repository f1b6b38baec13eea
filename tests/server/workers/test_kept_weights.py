"""Weights that a remote worker sends of the first runs: of the original model's form, and of a shard that it holds."""

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from sqlalchemy import select

from server.models.competition import Competition
from server.models.evaluation import Shard
from tests.server.workers.conftest import Hosted, outputs, submit, to_runs

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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not a file", "cannot be read"),
        (weights(2), "layer.count is ('I64', (2,)) and must be ('I64', (1,))"),
        (weights(**{"layer.weight": np.zeros((1, 3, 3), np.float32)}), "layer.weight is"),
        (weights(**{"layer.weight": np.zeros((1, 2, 3))}), "layer.weight is ('F64'"),
        (weights(more=np.zeros(1)), "more is"),
        (weights() + b"more", "cannot be read"),
    ],
)
def test_weights_of_another_form_are_refused_and_the_shard_stays(hosted: Hosted, content: bytes, says: str) -> None:
    keep(hosted, N_KEPT)
    submit(hosted)
    worker = hosted.worker(trusted=True)
    to_runs(worker)
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


def test_competition_that_keeps_no_weights_takes_none(hosted: Hosted) -> None:
    keep(hosted, 0)
    submit(hosted)
    worker = hosted.worker(trusted=True)
    to_runs(worker)
    assert worker.step("PUT", "weights", content=weights()).status_code == 409
    assert sent_weights(hosted) == []


def test_weights_of_a_shard_that_is_done_change_nothing(hosted: Hosted) -> None:
    keep(hosted, N_KEPT)
    submit(hosted)
    worker = hosted.worker(trusted=True)
    to_runs(worker)
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
