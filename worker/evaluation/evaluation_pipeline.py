"""The outputs of a shard's runs, in the order of the runs.

On a GPU a run is evaluated while the next one unlearns; where that run leaves no memory for it, it is evaluated again
when the run is over, so a run that fills the device spoils nobody's evaluation. On a CPU a run is evaluated before the
next one starts: inference beside a run would take a core's time from it, and runs are limited by the clock.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import structlog
from torch import Tensor

from lethe.data.files import sha256_of
from lethe.device import let_go_of_tensors, ran_out_of_memory
from lethe.errors import AppError
from lethe.evaluation.answer_evaluation import SampleAnswers
from lethe.evaluation.evaluators import BackgroundEvaluator, Evaluator
from lethe.evaluation.image_evaluation import NonFiniteOutputs
from lethe.evaluation.sample_answer_files import SAMPLE_ANSWERS, UnlearnedAnswers
from lethe.evaluation.shard_outputs import RunOutputs

log = structlog.get_logger()


class RunNotFinite(Exception):
    """A run's weights are finite, but too large for the network."""

    def __init__(self, run: int, error: NonFiniteOutputs) -> None:
        super().__init__(error.detail)
        self.run = run
        self.error = error


@dataclass(frozen=True)
class _Model:
    """A run's model, and the integer buffers of its own original model, None if it started from the split's."""

    weights: bytes
    integer_buffers: Mapping[str, Tensor] | None


class RunEvaluations:
    """Takes the weights of run after run; `outputs` grows in the same order, perhaps a run or two behind."""

    def __init__(self, evaluator: Evaluator, background: BackgroundEvaluator | None, outputs: list[RunOutputs]) -> None:
        self.outputs = outputs
        self._evaluator, self._background = evaluator, background
        self._waiting: deque[tuple[int, Future[RunOutputs], _Model]] = deque()

    def add(self, run: int, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> None:
        """Evaluate a run's weights. Raises RunNotFinite, for this run or one before it."""
        model = _Model(weights, integer_buffers)
        if self._background is None:
            self._keep(run, self._at_once(model), model)
            return
        self._waiting.append((run, self._background.submit(weights, integer_buffers=integer_buffers), model))
        while self._waiting and self._waiting[0][1].done():
            self._keep(*self._waiting.popleft())

    def finish(self) -> None:
        """Wait for what is still being evaluated. Raises RunNotFinite for the first run that is not."""
        while self._waiting:
            self._keep(*self._waiting.popleft())

    def _keep(self, run: int, future: Future[RunOutputs], model: _Model) -> None:
        """Keep the outputs of a run. Between runs no other run of the sandbox holds the device."""
        if self._background is not None and _lacked_memory(future):
            future = self._background.again(model.weights, integer_buffers=model.integer_buffers)
        try:
            self.outputs.append(future.result())
        except NonFiniteOutputs as error:
            raise RunNotFinite(run, error) from error

    def _at_once(self, model: _Model) -> Future[RunOutputs]:
        future: Future[RunOutputs] = Future()
        try:
            future.set_result(self._evaluator.evaluate(model.weights, integer_buffers=model.integer_buffers))
        except NonFiniteOutputs as error:
            future.set_exception(error)
        return future


def _lacked_memory(future: Future[RunOutputs]) -> bool:
    error = future.exception()
    if error is None or not ran_out_of_memory(error):
        return False
    let_go_of_tensors(error)
    return True


@contextmanager
def run_evaluations(evaluator: Evaluator, outputs: list[RunOutputs], *, overlapped: bool) -> Iterator[RunEvaluations]:
    """Yield what takes the runs' weights. Where the block ends in an error, what still waits is dropped."""
    if not overlapped:
        yield RunEvaluations(evaluator, None, outputs)
        return
    with BackgroundEvaluator(evaluator) as background:
        evaluations = RunEvaluations(evaluator, background, outputs)
        yield evaluations
        evaluations.finish()


def answers_of_run(split_dir: Path, weights: bytes, *, device: str) -> bytes | None:
    """Return the stored result of a run on the sample, None where the split asks no questions."""
    questions = split_dir / SAMPLE_ANSWERS
    if not questions.is_file():
        return None
    try:
        answers = SampleAnswers.load(split_dir, device).of_model(safetensors.torch.load(weights))
        result = UnlearnedAnswers(questions_sha256=sha256_of(questions), answers=answers)
    except (AppError, OSError, ValueError, RuntimeError) as error:
        log.warning("no answers on the sample", error=str(error))
        return None
    return result.model_dump_json().encode()
