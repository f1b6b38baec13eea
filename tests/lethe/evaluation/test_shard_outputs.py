"""Outputs of shards: stored, read back and joined, those of older versions too."""

import numpy as np

from lethe.evaluation.shard_outputs import ShardOutputs, join


def outputs(runs: int, *, classes: int | None = 3) -> ShardOutputs:
    rng = np.random.default_rng(runs)
    return ShardOutputs(
        confidences=rng.normal(size=(runs, 5)),
        retain_accuracy=rng.random(runs),
        test_accuracy=rng.random(runs),
        wall_time_s=rng.random(runs),
        class_accuracy=None if classes is None else rng.random((runs, 2, classes)).astype(np.float32),
    )


def test_what_is_stored_is_read_back() -> None:
    before = outputs(4)
    after = ShardOutputs.from_bytes(before.to_bytes())
    assert all(np.array_equal(getattr(before, name), getattr(after, name)) for name in vars(before))


def test_shards_are_joined_in_order() -> None:
    whole = join([outputs(2), outputs(3)])
    assert whole.class_accuracy is not None
    assert whole.class_accuracy.shape == (5, 2, 3)
    assert np.array_equal(whole.confidences[2:], outputs(3).confidences)


def test_shard_without_class_accuracies_drops_them_for_all() -> None:
    older = ShardOutputs.from_bytes(outputs(2, classes=None).to_bytes())
    assert older.class_accuracy is None
    assert join([outputs(3), older]).class_accuracy is None
    assert join([outputs(3), older]).retain_accuracy.shape == (5,)
