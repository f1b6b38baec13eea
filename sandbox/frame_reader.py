"""Frames of weights, checked before torch sees them. Everything read here may be hostile.

A reader takes bytes as they come and never holds more than the original model's file is long; the
header must equal the original's byte for byte, so nothing of it is parsed. Values are then looked
at as plain arrays: finite, and no larger than the policy allows.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.weights_layout import TensorSlot, WeightsLayout
from sandbox.guest.frame_format import (
    CHECKPOINT_TAG,
    CHOICE_TAG,
    FAULT_LENGTH,
    FAULT_TAG,
    MAX_FAULT_BYTES,
    MAX_SLOTS,
    NUMBER,
    TAG_BYTES,
    WEIGHTS_TAG,
    WRONG_RETURN_TAG,
)

MIN_HALVES = 32  # values that happen to be representable in half precision are taken for rounded ones from here on
_WEIGHTS_TAGS = frozenset({WEIGHTS_TAG, WRONG_RETURN_TAG})
_HEAD_BYTES = TAG_BYTES + NUMBER.size


class FrameState(StrEnum):
    """What a run has sent so far."""

    NONE = "none"
    PARTIAL = "partial"
    WEIGHTS = "weights"
    FAULT = "fault"
    MALFORMED = "malformed"


class FrameReader:
    """Collects one frame or one fault; `state` says how far it got. Bytes after a complete frame are dropped."""

    def __init__(self, layout: WeightsLayout) -> None:
        self._layout = layout
        self._content = bytearray()
        self._state = FrameState.NONE
        self._header_is_right = False

    @property
    def state(self) -> FrameState:
        return self._state

    @property
    def is_over(self) -> bool:
        """Nothing that comes now could change the outcome."""
        return self._state in {FrameState.WEIGHTS, FrameState.FAULT, FrameState.MALFORMED}

    @property
    def is_wrong_return(self) -> bool:
        """The weights are of the network that the function was given, since what it returned cannot count."""
        return self._content.startswith(WRONG_RETURN_TAG)

    @property
    def wanted_bytes(self) -> int:
        """The most that may still come; ask the pipe for no more."""
        return 0 if self.is_over else self._wanted_total() - len(self._content)

    def feed(self, chunk: bytes | memoryview) -> None:
        """Take the next bytes, in pieces of any size."""
        rest = memoryview(chunk)
        while rest and not self.is_over:
            taken = rest[: self.wanted_bytes]
            rest = rest[len(taken) :]
            self._content += taken
            self._judge()

    def weights(self) -> bytes:
        """Return the safetensors file of a complete frame."""
        if self._state is not FrameState.WEIGHTS:
            raise ValueError(f"there are no weights: {self._state}")
        return bytes(memoryview(self._content)[TAG_BYTES:])

    def fault(self) -> dict[str, Any]:
        """Return what a fault claims: a flat JSON object, empty where it is not one."""
        if self._state is not FrameState.FAULT:
            raise ValueError(f"there is no fault: {self._state}")
        return parse_fault(bytes(memoryview(self._content)[TAG_BYTES + FAULT_LENGTH.size :]))

    def _wanted_total(self) -> int:
        """How many bytes must be there before the next judgement."""
        tag = bytes(self._content[:TAG_BYTES])
        if tag in _WEIGHTS_TAGS:
            return TAG_BYTES + (self._layout.frame_bytes if self._header_is_right else len(self._layout.header))
        if tag != FAULT_TAG:
            return TAG_BYTES
        head = TAG_BYTES + FAULT_LENGTH.size
        if len(self._content) < head:
            return head
        length = int(FAULT_LENGTH.unpack_from(self._content, TAG_BYTES)[0])
        return head + length if length <= MAX_FAULT_BYTES else head

    def _judge(self) -> None:
        self._state = FrameState.PARTIAL
        if len(self._content) < self._wanted_total():
            return
        tag = bytes(self._content[:TAG_BYTES])
        if tag in _WEIGHTS_TAGS:
            self._judge_weights()
        elif tag == FAULT_TAG:
            length = FAULT_LENGTH.unpack_from(self._content, TAG_BYTES)[0]
            self._state = FrameState.FAULT if length <= MAX_FAULT_BYTES else FrameState.MALFORMED
        else:
            self._state = FrameState.MALFORMED

    def _judge_weights(self) -> None:
        if not self._header_is_right:
            if self._content[TAG_BYTES:] != self._layout.header:
                self._state = FrameState.MALFORMED
                return
            self._header_is_right = True
        if self._header_is_right and len(self._content) == TAG_BYTES + self._layout.frame_bytes:
            self._state = FrameState.WEIGHTS


def parse_fault(body: bytes) -> dict[str, Any]:
    """Return the fault's object, or an empty one: a claim that cannot be read claims nothing."""
    try:
        claim = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return claim if isinstance(claim, dict) else {}


@dataclass(frozen=True)
class WeightsProblem:
    """The first tensor that may not be used, and why."""

    kind: str  # "non-finite", "half-precision" or "huge"
    tensor: str


def find_problem(content: bytes, layout: WeightsLayout, *, max_abs_weight: float) -> WeightsProblem | None:
    """Return the first tensor with a value that is not finite or is too large, or None.

    content: a complete frame, whose header has been compared with the layout's.
    """
    data = memoryview(content)[len(layout.header) :]
    for slot in layout.tensors:
        kind = _find_problem(_values(slot, data[slot.begin : slot.end]), max_abs_weight=max_abs_weight)
        if kind == "non-finite" and _overflowed_half(layout, data):
            kind = "half-precision"
        if kind:
            return WeightsProblem(kind=kind, tensor=slot.name)
    return None


def half_precision_overflows(content: bytes, layout: WeightsLayout) -> frozenset[str]:
    """Return the tensors with a finite value that half precision cannot hold. content: a checked safetensors file."""
    data = memoryview(content)[len(layout.header) :]
    overflowing = set()
    for slot in layout.tensors:
        values = _values(slot, data[slot.begin : slot.end])
        if values.size and float(np.abs(values).max()) > float(np.finfo(np.float16).max):
            overflowing.add(slot.name)
    return frozenset(overflowing)


def _values(slot: TensorSlot, data: memoryview) -> NDArray[Any]:
    """The tensor's floating-point values; an empty array for integers: evaluation takes the original model's."""
    if slot.dtype == "BF16":  # numpy has no bfloat16: it is the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
    return np.frombuffer(data, kinds[slot.dtype]) if slot.dtype in kinds else np.empty(0)


def _overflowed_half(layout: WeightsLayout, data: memoryview) -> bool:
    """Return whether single-precision weights have all been in half precision: then infinity is an overflow of it."""
    n_finite = 0
    for slot in layout.tensors:
        values = _values(slot, data[slot.begin : slot.end])
        finite = values[np.isfinite(values)]
        with np.errstate(over="ignore"):
            rounded = finite.astype(np.float16)
        if slot.dtype in ("F16", "BF16") or np.isnan(values).any() or (rounded != finite).any():
            return False
        n_finite += len(finite)
    return n_finite >= MIN_HALVES


def _find_problem(values: NDArray[Any], *, max_abs_weight: float) -> str:
    if not values.size:
        return ""
    # The two extremes carry NaN and infinity along, and cost no array of their own.
    lowest, highest = float(values.min()), float(values.max())
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        return "non-finite"
    return "huge" if max(-lowest, highest) > max_abs_weight else ""


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
