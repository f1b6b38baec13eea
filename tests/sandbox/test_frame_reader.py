"""Frames and other hostile bytes: one safetensors file of the expected layout, or refused."""

import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from lethe.runtime.weights_layout import BadLayout, WeightsLayout, read_layout
from sandbox.frame_reader import FrameReader, FrameState, find_problem, half_precision_overflows
from sandbox.guest.frame_format import (
    FAULT_TAG,
    MAX_FAULT_BYTES,
    TAG_BYTES,
    WEIGHTS_TAG,
    WRONG_RETURN_TAG,
    encode_fault,
)
from tests.support.hostile_bytes import TARGETS, examine, mutated

ORIGINAL = save({"weight": torch.ones(2, 3), "bias": torch.zeros(3), "steps": torch.tensor(4)})

LAYOUT = read_layout(ORIGINAL)


def read_in_pieces(content: bytes, sizes: list[int]) -> FrameReader:
    reader, position = FrameReader(LAYOUT), 0
    for size in [*sizes, len(content)]:
        reader.feed(content[position : position + size])
        position += size
    return reader


@given(st.lists(st.integers(1, 50), max_size=20))
def test_frame_is_the_same_in_pieces_of_any_size(sizes: list[int]) -> None:
    reader = read_in_pieces(WEIGHTS_TAG + ORIGINAL, sizes)
    assert reader.state is FrameState.WEIGHTS
    assert reader.weights() == ORIGINAL


def test_weights_after_a_wrong_return_are_read_and_marked() -> None:
    readers = [read_in_pieces(tag + ORIGINAL, [3, 7]) for tag in (WEIGHTS_TAG, WRONG_RETURN_TAG)]
    assert [reader.weights() for reader in readers] == [ORIGINAL, ORIGINAL]
    assert [reader.is_wrong_return for reader in readers] == [False, True]


@given(st.binary(max_size=20_000), st.lists(st.integers(1, 500), max_size=20))
def test_any_bytes_end_in_a_state_within_a_frames_memory(content: bytes, sizes: list[int]) -> None:
    reader = read_in_pieces(content, sizes)
    assert len(reader._content) <= TAG_BYTES + max(LAYOUT.frame_bytes, MAX_FAULT_BYTES + 2)
    assert reader.is_over == (reader.wanted_bytes == 0)
    if reader.state is FrameState.FAULT:
        assert isinstance(reader.fault(), dict)


@given(st.sampled_from([WEIGHTS_TAG, WRONG_RETURN_TAG, FAULT_TAG]), st.binary(max_size=5000))
def test_bytes_behind_a_right_tag_never_raise(tag: bytes, content: bytes) -> None:
    reader = read_in_pieces(tag + content, [])
    assert reader.state is not FrameState.WEIGHTS or content.startswith(LAYOUT.header)


@given(st.integers(0, len(LAYOUT.header) - 1), st.integers(1, 255))
def test_one_changed_byte_of_the_header_is_malformed(position: int, change: int) -> None:
    content = bytearray(WEIGHTS_TAG + ORIGINAL)
    content[TAG_BYTES + position] ^= change
    assert read_in_pieces(bytes(content), []).state is FrameState.MALFORMED


def test_header_is_judged_before_the_data_comes() -> None:
    reader = FrameReader(LAYOUT)
    reader.feed(WEIGHTS_TAG + bytes(len(LAYOUT.header)))
    assert reader.state is FrameState.MALFORMED


def test_bytes_after_a_frame_are_dropped() -> None:
    assert read_in_pieces(WEIGHTS_TAG + ORIGINAL + b"more", []).weights() == ORIGINAL


def test_fault_round_trips_and_a_huge_one_is_cut() -> None:
    assert read_in_pieces(encode_fault({"class": "exception", "line": 3}), []).fault() == {
        "class": "exception",
        "line": 3,
    }
    assert read_in_pieces(encode_fault({"class": "x", "mro": ["y" * 9000]}), []).fault() == {"class": "x"}


def test_asking_for_what_is_not_there_raises() -> None:
    with pytest.raises(ValueError, match="no weights"):
        FrameReader(LAYOUT).weights()
    with pytest.raises(ValueError, match="no fault"):
        FrameReader(LAYOUT).fault()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("value", "kind"), [(float("nan"), "non-finite"), (float("inf"), "non-finite"), (-6e4, "huge"), (1.0, None)]
)
def test_values_are_judged_in_every_floating_type(dtype: torch.dtype, value: float, kind: str | None) -> None:
    content = save({"first": torch.arange(5), "second": torch.tensor([[0.0, value], [1.0, 2.0]], dtype=dtype)})
    problem = find_problem(content, read_layout(content), max_abs_weight=1e4)
    assert (problem and (problem.kind, problem.tensor)) == (kind and (kind, "second"))


@pytest.mark.parametrize(
    ("half", "kind"), [(True, "half-precision"), (False, "non-finite")], ids=["saved in half", "another infinity"]
)
def test_an_overflow_of_half_precision_is_told_apart(half: bool, kind: str) -> None:
    weights = torch.linspace(-3, 3, 64)
    big = torch.tensor([1.0, 7e4, 0.3])
    state = {"fc.weight": weights, "fc.bias": big}
    state = {name: value.half().float() for name, value in state.items()} if half else state | {"fc.bias": big / 0}
    content = save(state)
    problem = find_problem(content, read_layout(content), max_abs_weight=1e9)
    assert problem is not None
    assert (problem.kind, problem.tensor) == (kind, "fc.bias")


def test_scalars_and_empty_tensors_are_fine() -> None:
    content = save({"a": torch.tensor(1.5), "b": torch.zeros(0, 3), "c": torch.tensor(True)})
    assert find_problem(content, read_layout(content), max_abs_weight=10) is None


@given(st.binary(max_size=400))
def test_any_file_is_a_layout_or_a_named_mistake(content: bytes) -> None:
    try:
        layout = read_layout(content)
    except BadLayout:
        return
    assert isinstance(layout, WeightsLayout)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)

_ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "I64", "F8", 3, None]),
        "shape": st.lists(st.integers(-2, 2**60), max_size=3) | _JSON,
        "data_offsets": st.lists(st.integers(-5, 2**60), min_size=1, max_size=3) | _JSON,
    }
)


@given(st.dictionaries(st.text(max_size=5), _ENTRY | _JSON, max_size=4) | _JSON)
def test_any_json_header_is_a_layout_or_a_named_mistake(entries: object) -> None:
    header = json.dumps(entries).encode()
    try:
        layout = read_layout(struct.pack("<Q", len(header)) + header)
    except BadLayout:
        return
    assert layout.data_bytes == sum(slot.end - slot.begin for slot in layout.tensors)


def test_deeply_nested_header_is_a_named_mistake() -> None:
    header = b"[" * 200_000
    with pytest.raises(BadLayout):
        read_layout(struct.pack("<Q", len(header)) + header)


def test_layout_agrees_with_the_safetensors_package() -> None:
    assert [slot.name for slot in LAYOUT.tensors] == sorted(["weight", "bias", "steps"], key=_begin)
    assert LAYOUT.frame_bytes == len(ORIGINAL)
    weight = next(slot for slot in LAYOUT.tensors if slot.name == "weight")
    data = ORIGINAL[len(LAYOUT.header) :][weight.begin : weight.end]
    np.testing.assert_array_equal(np.frombuffer(data, "<f4").reshape(weight.shape), np.ones((2, 3)))


def _begin(name: str) -> int:
    return next(slot.begin for slot in LAYOUT.tensors if slot.name == name)


def test_tensors_that_half_precision_cannot_hold_are_named() -> None:
    content = save({"a": torch.tensor([1.0, 65504.0]), "b": torch.tensor([-7e4]), "c": torch.arange(3)})
    assert half_precision_overflows(content, read_layout(content)) == {"b"}


_NUMBER = st.integers(0, 2**16 - 1)

_PIECE = st.binary(max_size=8) | st.sampled_from([b"\xff" * 4, b"\xff" * 8, b"\x7f", bytes(8), b"[" * 500, b"\n" * 500])

_EDIT = st.tuples(st.integers(0, 4), _NUMBER, _NUMBER, _PIECE)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read(name: str) -> None:
    for seed in TARGETS[name].seeds:
        examine(TARGETS[name], seed)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    seed, other = data.draw(st.sampled_from(target.seeds)), data.draw(st.sampled_from(target.seeds))
    examine(target, mutated(seed, data.draw(st.lists(_EDIT, max_size=8)), other))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(name: str, content: bytes) -> None:
    examine(TARGETS[name], content)
