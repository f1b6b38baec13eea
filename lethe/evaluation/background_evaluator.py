"""Evaluation of one run's weights while the next run is unlearning."""

import gc
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import torch
from torch import Tensor

from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.shard_outputs import RunOutputs


class BackgroundEvaluator:
    """Evaluates a run's weights while the next run is unlearning: one thread, at most `waiting` models held.

    Results are those of the evaluator itself; order and overlap do not touch their bits.
    """

    def __init__(self, evaluator: Evaluator, *, waiting: int = 2) -> None:
        self._evaluator = evaluator
        self._places = threading.BoundedSemaphore(waiting)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluate")

    def submit(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> Future[RunOutputs]:
        """Accept the arguments of evaluate; waits while too many are held. The future raises what evaluate raises."""
        self._places.acquire()
        future = self._thread.submit(self._evaluator.evaluate, weights, integer_buffers=integer_buffers)
        future.add_done_callback(lambda _: self._places.release())
        return future

    def again(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> Future[RunOutputs]:
        """Evaluate once more, after what was already taken; the device's memory that nothing uses is free by then."""
        return self._thread.submit(self._evaluate_again, weights, integer_buffers)

    def _evaluate_again(self, weights: bytes, integer_buffers: Mapping[str, Tensor] | None) -> RunOutputs:
        gc.collect()
        if self._evaluator.device.type == "cuda":
            torch.cuda.empty_cache()
        return self._evaluator.evaluate(weights, integer_buffers=integer_buffers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown(cancel_futures=error_type is not None)
