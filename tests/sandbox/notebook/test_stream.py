"""The stream of checkpoints: whole models in any pieces, and nothing else."""

import os
import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.runtime.weights_layout import WeightsLayout, read_layout
from sandbox.frame_reader import CheckpointReader, FrameState, NotebookRun
from sandbox.guest.frame_format import (
    CHECKPOINT_TAG,
    CHOICE_TAG,
    WEIGHTS_TAG,
    encode_checkpoint_head,
    encode_choice,
    encode_fault,
)
from sandbox.pidfd import ProcessHandle
from sandbox.supervisor import RunWatch
from tests.sandbox.conftest import TEST_POLICY

HEADER = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
FILE_START = struct.pack("<Q", len(HEADER)) + HEADER
LAYOUT: WeightsLayout = read_layout(FILE_START + bytes(8))


def model(value: float) -> bytes:
    return FILE_START + struct.pack("<2f", value, value)


def reader(wanted: int = 2, stop_after: int | None = None) -> tuple[CheckpointReader, dict[int, bytes]]:
    models: dict[int, bytes] = {}
    run = NotebookRun(wanted, models.__setitem__, stop_after=stop_after)
    return CheckpointReader(LAYOUT, run, max_abs_weight=1e3), models


def sent(*values: float) -> bytes:
    return b"".join(encode_checkpoint_head(slot) + model(value) for slot, value in enumerate(values))


@given(st.lists(st.integers(1, 50), max_size=30))
def test_pieces_of_any_size_give_the_same(sizes: list[int]) -> None:
    found, models = reader()
    content = sent(1, 2) + encode_choice([1, 0])
    for size in (*sizes, len(content)):
        found.feed(content[:size])
        content = content[size:]
    assert found.state is FrameState.WEIGHTS
    assert found.chosen == (1, 0)
    assert models == {0: model(1), 1: model(2)}


def test_a_slot_that_comes_again_replaces() -> None:
    found, models = reader()
    found.feed(sent(1, 2) + encode_checkpoint_head(0) + model(7) + encode_choice([0, 1]))
    assert models[0] == model(7)


def test_a_bad_model_matters_only_if_it_is_chosen() -> None:
    found, models = reader()
    found.feed(sent(1, float("nan"), 3) + encode_choice([0, 2]))
    assert (found.state, found.problem) == (FrameState.WEIGHTS, None)
    found, models = reader()
    found.feed(sent(1, float("nan")) + encode_choice([0, 1]))
    assert found.problem is not None
    assert found.problem.kind == "non-finite"
    assert models == {0: model(1)}


def test_it_is_over_with_the_first_model_where_that_is_enough() -> None:
    found, _ = reader(wanted=100, stop_after=1)
    found.feed(sent(1))
    assert found.is_over
    assert found.chosen == (0,)


def test_one_slot_sent_again_and_again_comes_to_an_end() -> None:
    allowed = 8 * 2 + 1024
    found, _ = reader()
    found.feed(sent(1) * allowed)
    assert not found.is_over
    found.feed(sent(1))
    assert found.state is FrameState.FAULT
    assert found.fault()["class"] == "too-many-checkpoints"


@pytest.mark.parametrize("slots", [[0], [0, 0], [0, 5], [0, 1, 2], []])
def test_a_choice_of_others_than_came_is_too_few(slots: list[int]) -> None:
    found, _ = reader()
    found.feed(sent(1, 2, 3) + encode_choice(slots))
    assert found.state is FrameState.FAULT
    assert found.fault()["class"] == "too-few-checkpoints"


def test_a_fault_ends_the_stream() -> None:
    found, _ = reader()
    found.feed(sent(1) + encode_fault({"class": "exception"}))
    assert found.state is FrameState.FAULT
    assert found.fault() == {"class": "exception"}


@pytest.mark.parametrize(
    "content",
    [
        b"XXXX",
        WEIGHTS_TAG + model(1),
        encode_checkpoint_head(0) + b"\x05" + model(1)[1:],
        CHECKPOINT_TAG + b"\xff\xff\xff\xff" + model(1),
        CHOICE_TAG + b"\xff\xff\xff\xff",
    ],
)
def test_anything_else_is_malformed(content: bytes) -> None:
    found, models = reader()
    found.feed(content)
    assert found.state is FrameState.MALFORMED
    assert not models


@given(st.binary(max_size=300))
def test_no_bytes_make_it_hold_more_than_a_model(content: bytes) -> None:
    found, _ = reader()
    found.feed(content)
    assert found.wanted_bytes <= max(LAYOUT.frame_bytes + 8, 1 << 16, 4 << 20)


def test_all_that_a_run_sent_is_read_though_it_has_ended() -> None:
    found, models = reader()
    pipes = [os.pipe(), os.pipe()]
    for (_, end), content in zip(pipes, (sent(1, 2) + encode_choice([0, 1]), b"said"), strict=True):
        os.write(end, content)
        os.close(end)
    with subprocess.Popen(["true"]) as process:
        handle = ProcessHandle(process.pid)
        handle.wait_for_death()
        (frame, _), (log, _) = pipes
        watch = RunWatch(handle, frame_fd=frame, log_fd=log, reader=found, policy=TEST_POLICY, group=None)
        assert watch.watch().log == b"said"
        handle.close()
    assert (found.chosen, len(models)) == ((0, 1), 2)
