"""Outputs of runs drawn at random, and a split in storage that they can be scored against."""

import numpy as np

from lethe.evaluation.manifest import EvaluationSettings, FileRecord, Manifest
from lethe.evaluation.model_outputs import OUTPUT_PATHS
from lethe.evaluation.shard_outputs import ShardOutputs
from server.storage import Storage
from tests.server.evaluations.conftest import N


def outputs(seed: int, n_models: int = N) -> ShardOutputs:
    rng = np.random.default_rng(seed)
    accuracy = rng.uniform(0.8, 1.0, n_models)
    return ShardOutputs(rng.normal(seed, 1.0, (n_models, 6)), accuracy, accuracy, wall_time_s=accuracy)


def stored_split(storage: Storage, key: str) -> str:
    """Store what scores are computed from, and a manifest that names it. Return the manifest's hash."""
    files = {}
    for kind, seed in (("retrained", 0), ("oracle", 3)):
        path, content = OUTPUT_PATHS[kind], outputs(seed).to_bytes()  # type: ignore[index]
        files[path] = FileRecord(sha256=storage.write(f"{key}/{path}", content), size=len(content))
    manifest = Manifest(
        competition="tiny",
        visibility="public",
        n_models=N,
        fingerprint="",
        recipe={},
        seeds={},
        versions={},
        files=files,
        retraining_time_s=1.0,
        evaluation=EvaluationSettings(),
        quality={},
        steps={},
    )
    return storage.write(f"{key}/manifest.json", manifest.model_dump_json().encode())
