"""The stream of a notebook's run: checkpoints as they come, each checked like a frame, then which of them count.

Everything read here may be hostile. A checkpoint is handed on and dropped at once, so that what is held never exceeds
one model, however many there are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.weights_layout import WeightsLayout
from sandbox.frame_reader import FrameReader, FrameState, WeightsProblem, find_problem
from sandbox.guest.frame_format import TAG_BYTES
from sandbox.guest.notebook.frame_format import CHECKPOINT_TAG, CHOICE_TAG, MAX_SLOTS, NUMBER

_HEAD_BYTES = TAG_BYTES + NUMBER.size


@dataclass(frozen=True)
class NotebookRun:
    """What is wanted of a notebook's run.

    checkpoints: how many models must count in the end.
    on_checkpoint: called with a slot and the checked safetensors file of each model; a slot may come again.
    stop_after: end the run, content, after so many models; None waits for the notebook's end.
    """

    checkpoints: int
    on_checkpoint: Callable[[int, bytes], None]
    stop_after: int | None = None


class CheckpointReader(FrameReader):
    """Takes a notebook's stream. `chosen` is set once it has ended as it should."""

    def __init__(self, layout: WeightsLayout, notebook: NotebookRun, *, max_abs_weight: float) -> None:
        super().__init__(layout)
        self._notebook = notebook
        self._max_abs_weight = max_abs_weight
        self._max_models = min(MAX_SLOTS, 8 * notebook.checkpoints + 1024)
        self._models = 0
        self._problems: dict[int, WeightsProblem] = {}
        self._good: dict[int, None] = {}  # in the order in which they came
        self._own_fault: dict[str, Any] | None = None
        self.chosen: tuple[int, ...] = ()
        self.problem: WeightsProblem | None = None

    def fault(self) -> dict[str, Any]:
        return self._own_fault if self._own_fault is not None else super().fault()

    def _wanted_total(self) -> int:
        tag = self._tag()
        if tag not in (CHECKPOINT_TAG, CHOICE_TAG):
            return super()._wanted_total()
        if len(self._content) < _HEAD_BYTES:
            return _HEAD_BYTES
        if tag == CHOICE_TAG:
            return _HEAD_BYTES + NUMBER.size * min(self._number(), MAX_SLOTS)
        body = self._layout.frame_bytes if self._header_is_right else len(self._layout.header)
        return _HEAD_BYTES + body

    def _judge(self) -> None:
        tag = self._tag()
        if tag == CHECKPOINT_TAG:
            self._state = FrameState.PARTIAL
            self._judge_checkpoint()
        elif tag == CHOICE_TAG:
            self._state = FrameState.PARTIAL
            self._judge_choice()
        elif tag is None:
            self._state = FrameState.PARTIAL
        else:
            super()._judge()

    def _judge_weights(self) -> None:
        self._state = FrameState.MALFORMED  # a lone frame has no place in this stream

    def _judge_checkpoint(self) -> None:
        if len(self._content) >= _HEAD_BYTES and self._number() > self._max_models:
            self._state = FrameState.MALFORMED
            return
        if len(self._content) < max(self._wanted_total(), _HEAD_BYTES + 1):
            return
        if not self._header_is_right:
            self._header_is_right = self._content[_HEAD_BYTES:] == self._layout.header
            if not self._header_is_right:
                self._state = FrameState.MALFORMED
            elif len(self._content) == self._wanted_total():
                self._deliver()
            return
        self._deliver()

    def _deliver(self) -> None:
        slot, weights = self._number(), bytes(memoryview(self._content)[_HEAD_BYTES:])
        self._content = bytearray()
        self._header_is_right = False
        self._models += 1
        if self._models > self._max_models:  # each is evaluated, in time that is not the run's
            self._own_fault = {"class": ErrorClass.TOO_MANY_CHECKPOINTS}
            self._state = FrameState.FAULT
            return
        self._good.pop(slot, None)
        self._problems.pop(slot, None)
        problem = find_problem(weights, self._layout, max_abs_weight=self._max_abs_weight)
        if problem is not None:
            self._problems[slot] = problem
            return
        self._notebook.on_checkpoint(slot, weights)
        self._good[slot] = None
        if self._notebook.stop_after is not None and len(self._good) >= self._notebook.stop_after:
            self.chosen = tuple(self._good)
            self._state = FrameState.WEIGHTS

    def _judge_choice(self) -> None:
        if len(self._content) >= _HEAD_BYTES and self._number() > MAX_SLOTS:
            self._state = FrameState.MALFORMED
            return
        if len(self._content) < self._wanted_total():
            return
        numbers = NUMBER.iter_unpack(memoryview(self._content)[_HEAD_BYTES:])
        slots = tuple(int(number) for (number,) in numbers)
        known = self._good.keys() | self._problems.keys()
        if len(set(slots)) != self._notebook.checkpoints or len(slots) != len(set(slots)) or not known >= set(slots):
            self._own_fault = {"class": ErrorClass.TOO_FEW_CHECKPOINTS}
            self._state = FrameState.FAULT
            return
        self.problem = next((self._problems[slot] for slot in slots if slot in self._problems), None)
        self.chosen = slots
        self._state = FrameState.WEIGHTS

    def _tag(self) -> bytes | None:
        return bytes(self._content[:TAG_BYTES]) if len(self._content) >= TAG_BYTES else None

    def _number(self) -> int:
        return int(NUMBER.unpack_from(self._content, TAG_BYTES)[0])
