"""Arrays beside the confidences that a remote worker sends: those of the split's own models, checked."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from sqlalchemy import select

from server.models.competition import Split
from server.models.evaluation import Shard
from tests.server.workers.conftest import FILES, N_FORGET, Hosted, outputs, sha256, submit, to_runs

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
