"""The bytes that leave a run: one frame of weights, or one small fault. Standard library only.

A weights frame is WEIGHTS_TAG (or WRONG_RETURN_TAG, where the function returned something that cannot count and the
weights are those of the network it was given), followed by exactly one safetensors file; a fault is FAULT_TAG, a
two-byte length and that many bytes of JSON. The reader knows the length of the first beforehand
and caps that of the second, so neither can make it wait for, or hold, more than it expects.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any

from lethe.runtime.error_classes import ErrorClass

CHECKPOINT_TAG = b"LCF1"
CHOICE_TAG = b"LCE1"
NUMBER = struct.Struct("<I")
MAX_SLOTS = 1 << 20
FIRST, SECOND, AGAIN = range(3)  # slots of a comparison: two models of one program, and the second's like by another


def encode_checkpoint_head(slot: int) -> bytes:
    """Return what stands before a checkpoint's safetensors file."""
    return CHECKPOINT_TAG + NUMBER.pack(slot)


def encode_choice(slots: Sequence[int]) -> bytes:
    """Return the end of the stream: the slots that count, in the order of their runs."""
    return CHOICE_TAG + NUMBER.pack(len(slots)) + b"".join(NUMBER.pack(slot) for slot in slots)


WEIGHTS_TAG = b"LWF1"
WRONG_RETURN_TAG = b"LWR1"
FAULT_TAG = b"LFF1"
TAG_BYTES = 4
MAX_FAULT_BYTES = 4096
FAULT_LENGTH = struct.Struct("<H")


def weights_tag(*, is_wrong_return: bool) -> bytes:
    """Return what stands before the weights."""
    return WRONG_RETURN_TAG if is_wrong_return else WEIGHTS_TAG


def encode_fault(fault: dict[str, Any]) -> bytes:
    """Return the bytes of a fault, cut to the cap by dropping what matters least."""
    for dropped in ((), ("written",), ("written", "mro"), ("written", "mro", "file", "detail")):
        body = json.dumps({key: value for key, value in fault.items() if key not in dropped}).encode()
        if len(body) <= MAX_FAULT_BYTES:
            return FAULT_TAG + FAULT_LENGTH.pack(len(body)) + body
    body = json.dumps({"class": ErrorClass.EXCEPTION}).encode()
    return FAULT_TAG + FAULT_LENGTH.pack(len(body)) + body
