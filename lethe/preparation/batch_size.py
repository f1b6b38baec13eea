"""The batch size of evaluation: found once for a split, then fixed in its manifest.

On a GPU it is measured. On a CPU it follows from the image's size, so that preparing a split twice gives the same
bits; measured rates are flat there.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch

from lethe.data.stored_sets import StoredSet
from lethe.device.memory import ran_out_of_memory
from lethe.device.precision import Precision
from lethe.evaluation.inference import SplitEvaluator
from lethe.training.trainer import untrained

CANDIDATES = (64, 128, 256, 512, 1024, 2048, 4096)
CPU_BATCH, CPU_BATCH_TINY, TINY_PIXELS = 256, 1024, 256
TIMED_IMAGES = 4096
WORTH_IT = 1.05  # a larger batch must be this much faster, since it also needs more memory


def choose_batch_size(
    network: Mapping[str, Any], sets: Mapping[str, StoredSet], *, device: str, precision: Precision
) -> int:
    """Return the batch size at which this device evaluates this network fastest."""
    if device == "cpu":
        return CPU_BATCH_TINY if sets["retain"].images[0].numel() <= TINY_PIXELS else CPU_BATCH
    timed = sets["retain"].part(0, TIMED_IMAGES)
    state = untrained(network, 0).state_dict()
    best_size, best_rate = CANDIDATES[0], 0.0
    for size in CANDIDATES:
        try:
            rate = _images_per_second(network, timed, state, device=device, precision=precision, batch_size=size)
        except RuntimeError as error:
            if not ran_out_of_memory(error):
                raise
            break
        if rate > best_rate * WORTH_IT:
            best_size, best_rate = size, rate
        if size >= len(timed):
            break
    return best_size


def _images_per_second(
    network: Mapping[str, Any],
    timed: StoredSet,
    state: Mapping[str, torch.Tensor],
    *,
    device: str,
    precision: Precision,
    batch_size: int,
) -> float:
    sets = {"retain": timed, "forget": timed.part(0, 1), "test": timed.part(0, 1)}
    evaluator = SplitEvaluator(network, sets, device=device, batch_size=batch_size, precision=precision)
    evaluator.evaluate_state(state)
    started = time.perf_counter()
    evaluator.evaluate_state(state)
    return len(timed) / (time.perf_counter() - started)
