"""Several models side by side on one CUDA device.

One small network leaves most of a large GPU idle, and its steps are bound by the processor that launches them. So a
training step of each model is captured once as a CUDA graph and replayed on the model's own stream. Each model keeps
its own seed, order, optimiser and graph: what it becomes does not depend on its company. A step that cannot be captured
is made by the same kernels, launched one by one.

What makes the host wait for the device cannot be captured (`.item()`, a branch on a tensor's value, copies to the
host). Once the device has refused a capture its rest is lost, and releases of torch before the fixing of
CUDAGraph::capture_end leave the allocator as if it still ran. So a step is rehearsed first, outside any capture.
"""

import contextlib
import gc
import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.device import causes, let_go_of_tensors, ran_out_of_memory
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.trainer import (
    ModelTraining,
    OnEpoch,
    OnNote,
    State,
    TrainingJob,
    augment,
    learning_rate,
    make_optimizer,
    set_learning_rate,
    stack_states,
    untrained,
)

_NETWORK_SOURCE = "<network source>"  # the file that lethe/networks/builders.py names for an organiser's text
_WAITS = "synchronizing CUDA operation"  # how torch's check of waiting calls says what it found


class StepRefused(Exception):
    """A step that cannot be captured; its text says why, and where in an organiser's own network."""


def rehearse(step: Callable[[], None]) -> None:
    """Make the step once, on the device. Raises StepRefused where the host waits for the device in it."""
    try:
        with _waiting_is_an_error():
            step()
    except RuntimeError as error:
        if _WAITS not in str(error):
            raise
        raise _refusal(error) from None


def captured(step: Callable[[], None], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """Return the step as a graph. Raises StepRefused; what was computed on the host by then is not undone.

    A lack of the device's memory is raised as it is: a smaller group may have enough.
    """
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            step()
    except Exception as error:  # a network may fail in any way that it does not fail in outside
        with contextlib.suppress(RuntimeError):  # newer releases have ended it by then
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        if ran_out_of_memory(error):
            raise
        raise _refusal(error) from None
    return graph


@contextlib.contextmanager
def _waiting_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error")
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: str | int) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # that it does not know every call
        torch.cuda.set_sync_debug_mode(mode)


def _refusal(error: Exception) -> StepRefused:
    """Return the refusal that the first of an error's causes asks for, and forget where they were raised."""
    *_, first = causes(error)
    lines = [frame.lineno for frame in traceback.extract_tb(first.__traceback__) if frame.filename == _NETWORK_SOURCE]
    place = f" (line {lines[-1]} of the network's source)" if lines else ""
    let_go_of_tensors(error)
    text = str(first).strip().partition("\n")[0]
    return StepRefused(f"{type(first).__name__}: {text}{place}")


MODELS_AT_ONCE = 8
WARM_UP_STEPS = 3


def can_graph(job: TrainingJob) -> bool:
    """Say whether this job's steps can be captured: on CUDA, full batches, and a network that draws nothing.

    What draws random numbers shares the device's generator, so models side by side would not be functions of their
    seeds.
    """
    full_batches = len(job.labels) >= job.recipe.batch_size
    drawn = job.recipe.mixing != "none" or draws_random_numbers(job.network)
    return job.device.type == "cuda" and full_batches and not drawn


def draws_random_numbers(network: Mapping[str, Any]) -> bool:
    """Say whether a training step of the network draws random numbers (dropout, stochastic depth).

    It is tried, since attention and an organiser's own module draw without a layer that says so by its name. What
    Python and NumPy draw counts too: a captured step would keep to the first draw.
    """
    net = untrained(network, 0).train()
    with torch.random.fork_rng(devices=[]):
        before = _generators()
        net(torch.zeros(2, *network["input_shape"]))  # with gradients: some layers draw only then
        return _generators() != before


def _generators() -> tuple[object, ...]:
    """Return the states of the host's generators, to be compared."""
    numpy_state: Any = np.random.get_state(legacy=False)
    numpys = numpy_state["state"]["key"].tobytes(), numpy_state["state"]["pos"]
    return torch.get_rng_state().tolist(), random.getstate(), numpys


def train_graphed(
    job: TrainingJob,
    seeds: Mapping[int, int],
    *,
    at_once: int = MODELS_AT_ONCE,
    checkpoints: TrainingCheckpoints | None = None,
    on_epoch: OnEpoch | None = None,
    on_note: OnNote | None = None,
) -> State:
    """Return the state_dicts of all models, each tensor stacked [models, ...] in the order of `seeds`.

    at_once: how many side by side; where they do not fit into the device's memory, half of that, down to one. on_note:
    is called, once, with why steps are not captured.
    """
    capture = Capture(on_note)
    states: dict[int, State] = {}
    for index in seeds:
        kept = checkpoints.finished(index) if checkpoints else None
        if kept is not None:
            states[index] = kept
            if on_epoch:
                on_epoch(job.recipe.epochs)
    waiting = [index for index in seeds if index not in states]
    while waiting:
        group = {index: seeds[index] for index in waiting[:at_once]}
        try:
            states |= _train_group(job, group, capture, checkpoints=checkpoints, on_epoch=on_epoch)
        except RuntimeError as error:
            if len(group) == 1 or not ran_out_of_memory(error):
                raise
            at_once = len(group) // 2
        if waiting[0] not in states:  # what the error held of the group's memory is free only here
            gc.collect()
            torch.cuda.empty_cache()
        waiting = [index for index in waiting if index not in states]
    return stack_states([states[index] for index in seeds])


class Capture:
    """Whether the steps of a job are captured: until one is refused, since the others would be."""

    def __init__(self, on_note: OnNote | None = None) -> None:
        self.is_refused = False
        self._on_note = on_note

    def refuse(self, reason: str) -> None:
        self.is_refused = True
        if self._on_note:
            self._on_note(f"training steps are not captured as CUDA graphs, which takes longer: {reason}")


def _train_group(
    job: TrainingJob,
    seeds: Mapping[int, int],
    capture: Capture,
    *,
    checkpoints: TrainingCheckpoints | None,
    on_epoch: OnEpoch | None,
) -> dict[int, State]:
    torch.cuda.synchronize()  # the data was written on the default stream
    models = {index: GraphedTraining(job, index, seed, checkpoints, capture) for index, seed in seeds.items()}
    running = {index: model.steps() for index, model in models.items()}
    while running:
        for index in list(running):
            epochs_done = next(running[index], None)
            if epochs_done is None:
                del running[index]
            elif epochs_done and on_epoch:
                on_epoch(epochs_done)
    torch.cuda.synchronize()
    states = {index: model.training.state() for index, model in models.items()}
    if checkpoints:
        for index, state in states.items():
            checkpoints.model_done(index, state)
    return states


class GraphedTraining:
    """One model whose full-batch step is a captured graph, where it can be captured."""

    def __init__(
        self, job: TrainingJob, index: int, seed: int, checkpoints: TrainingCheckpoints | None, capture: Capture
    ) -> None:
        self.job, self.index, self.seed, self.checkpoints = job, index, seed, checkpoints
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self.stream):
            if not capture.is_refused:
                try:
                    self._begin(rehearsed=True)
                    self.graph = captured(self._whole_step, self.stream)
                except StepRefused as refusal:
                    capture.refuse(str(refusal))
            if self.graph is None:  # from the beginning: nothing of a broken step is left
                self._begin(rehearsed=False)

    def _begin(self, *, rehearsed: bool) -> None:
        """Start from the seed, or from the last epoch kept, with an optimiser that has its state."""
        job = self.job
        self.training = ModelTraining.start(job, self.seed)
        self.training.optimizer = make_optimizer(job.recipe, self.training.net.parameters(), capturable_on=job.device)
        self.training.net.train()
        index, self.images = next(job.batches(torch.arange(job.recipe.batch_size), job.recipe.batch_size))
        self.labels = job.labels[index]
        self._warm_up(rehearsed=rehearsed)
        if self.checkpoints:
            self.checkpoints.resume(self.training, self.index)
        self.training.optimizer.zero_grad(set_to_none=True)  # a captured step makes gradients of its own

    def steps(self) -> Iterator[int]:
        """Train to the end, handing control back after each step; yields the epochs just finished (0 or 1)."""
        training, job = self.training, self.job
        if training.epoch:
            yield training.epoch
        while training.epoch < job.recipe.epochs:
            order = torch.randperm(len(job.labels), generator=training.generator)
            batches = job.batches(order, job.recipe.batch_size)
            for number in range(job.steps_per_epoch):
                step = training.epoch * job.steps_per_epoch + number
                rate = learning_rate(job.recipe, step=step, steps_per_epoch=job.steps_per_epoch)
                with torch.cuda.stream(self.stream):  # the batches too: joining the last two is work on the device
                    set_learning_rate(training.optimizer, rate)
                    self._step(*next(batches))
                if number + 1 < job.steps_per_epoch:
                    yield 0
            self._end_epoch()
            yield 1

    def _end_epoch(self) -> None:
        self.training.epoch += 1
        if self.checkpoints:
            self.stream.synchronize()
            self.checkpoints.after_epoch(self.training, self.index)

    def _step(self, index: Tensor, inputs: Tensor) -> None:
        if len(index) != self.job.recipe.batch_size:  # the last of an epoch: too rare to be worth a graph
            self.training.step(index, inputs)
            return
        self.images.copy_(augment(self.job.recipe, inputs, self.training.generator))
        torch.index_select(self.job.labels, 0, index, out=self.labels)
        if self.graph is None:
            self._whole_step()
        else:
            self.graph.replay()

    def _whole_step(self) -> None:
        self.training.step_on(self.images, self.labels)

    def _warm_up(self, *, rehearsed: bool) -> None:
        """Let libraries choose their kernels and the optimiser make its state, then undo the steps."""
        net, optimizer = self.training.net, self.training.optimizer
        start = [(value, value.detach().clone()) for value in (*net.parameters(), *net.buffers())]
        buffers = _Buffers(net)
        with warnings.catch_warnings():
            # these steps, and the last of each epoch, are meant to run outside the graph
            warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
            for _ in range(WARM_UP_STEPS):
                self._whole_step()
            if rehearsed:
                rehearse(self._whole_step)
        if rehearsed and (replaced := buffers.replaced()):
            raise StepRefused(f"the network replaces its buffer {replaced[0]!r}; written in place it could be captured")
        buffers.put_back()
        with torch.no_grad():
            for value, before in start:
                value.copy_(before)
        for values in optimizer.state.values():
            for value in values.values():
                if isinstance(value, Tensor):
                    value.zero_()
        self.stream.synchronize()


class _Buffers:
    """Which tensors a network's buffers are. One that a step replaces would be the same before each replay of it."""

    def __init__(self, net: nn.Module) -> None:
        self._of_modules = [(name, module, dict(module._buffers)) for name, module in net.named_modules()]

    def replaced(self) -> list[str]:
        """Return the names under which there are other tensors by now."""
        return [
            f"{path}.{name}".removeprefix(".")
            for path, module, before in self._of_modules
            for name, value in module._buffers.items()
            if value is not before.get(name)
        ]

    def put_back(self) -> None:
        for _, module, before in self._of_modules:
            module._buffers.clear()
            module._buffers.update(before)
