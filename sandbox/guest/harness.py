"""Runs one task inside the sandbox and writes its weights, or its fault, to the frame's descriptor."""

import os
import sys
import traceback
from collections.abc import Sequence

from lethe.runtime.entry import Preloaded, RunFault, Task, Unlearned, unlearned_weights
from lethe.runtime.faults import describe
from sandbox.guest.frame_format import encode_fault, weights_tag

RECURSION_FRAMES = -60  # of a recursion that does not end: all of them could be more than a log may hold


def run_task(task: Task, preloaded: Preloaded, frame_fd: int) -> bool:
    """Run the task; write one frame of weights or one fault to `frame_fd`. Returns whether it was weights."""
    try:
        unlearned = unlearned_weights(task, preloaded)
    except BaseException as error:
        report_fault(error, task, frame_fd)
        return False
    write_frame(unlearned, preloaded, frame_fd)
    return True


def write_frame(unlearned: Unlearned, preloaded: Preloaded, frame_fd: int) -> None:
    """Write the run's weights; nothing that it prints afterwards belongs to it."""
    flush_output()
    write_all(frame_fd, weights_tag(is_wrong_return=unlearned.is_wrong_return) + preloaded.layout.header)
    for piece in unlearned.pieces:
        write_all(frame_fd, piece)


def report_fault(error: BaseException, task: Task, frame_fd: int, *, written: Sequence[str] = ()) -> None:
    """Write a fault. written: files of which none has counted as the run's model."""
    if not isinstance(error, RunFault):
        traceback.print_exception(error, limit=RECURSION_FRAMES if isinstance(error, RecursionError) else None)
    flush_output()
    write_all(frame_fd, encode_fault({"written": list(written)} | describe(error, task)))


def flush_output() -> None:
    """Push out what Python still holds of the run's output."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # closed or replaced by the participant: what it had is lost


def write_all(fd: int, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
