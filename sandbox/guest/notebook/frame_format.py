"""The bytes that leave a notebook's run: any number of checkpoints, then which of them count. Standard library only.

A checkpoint is CHECKPOINT_TAG, a slot number and one safetensors file with the original model's header; a slot that
comes again replaces what came before. CHOICE_TAG, a count and that many slots end the stream. Names stay inside.
"""

import struct
from collections.abc import Sequence

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
