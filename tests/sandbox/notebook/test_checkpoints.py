"""Torch files that a notebook saved: their tensors to the bit, and what is said of everything else."""

import io
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from lethe.runtime.entry import RunFault
from lethe.runtime.weights_layout import read_layout
from sandbox.guest.notebook.checkpoints import NoTensors, NotTorchFile, model_pieces, read_state_dict

NET = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))
ORIGINAL = save(NET.state_dict())
LAYOUT = read_layout(ORIGINAL)


def saved(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


SHARED = torch.arange(4.0)
STATES = {
    "plain": NET.state_dict(),
    "bfloat16": {"a": torch.ones(3, dtype=torch.bfloat16)},
    "parameters": dict(NET.named_parameters()),
    "views of one storage": {"a": torch.arange(12).view(3, 4).t(), "b": torch.arange(12)[3:7]},
    "shared": {"a": SHARED, "b": SHARED[1:]},
    "empty tensor": {"a": torch.empty(0, 3), "b": torch.tensor(3)},
}


@pytest.mark.parametrize("form", ["zip", "legacy"])
@pytest.mark.parametrize("name", STATES)
def test_what_torch_saves_is_read_to_the_bit(name: str, form: str) -> None:
    state = STATES[name]
    found = read_state_dict(saved(state, _use_new_zipfile_serialization=form == "zip"))
    assert set(found) == set(state)
    assert all(torch.equal(found[key], value) and found[key].dtype == value.dtype for key, value in state.items())


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (NET, NotTorchFile),
        ([torch.ones(2)], NotTorchFile),
        ({"state_dict": NET.state_dict()}, NotTorchFile),
        ({"a": torch.ones(2), "epoch": 3}, NotTorchFile),
        ({1: torch.ones(2)}, NotTorchFile),
        ({"epoch": 3}, NoTensors),
        ({}, NoTensors),
        (5, NoTensors),
    ],
)
def test_what_is_no_state_dict_is_refused(value: Any, error: type[NotTorchFile]) -> None:
    with pytest.raises(NotTorchFile) as raised:
        read_state_dict(saved(value))
    assert raised.type is error


class Attack:
    """Runs a command when it is unpickled in the usual way."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_nothing_that_a_file_names_is_called(tmp_path: Path) -> None:
    mark = tmp_path / "called"
    with pytest.raises(NotTorchFile):
        read_state_dict(saved({"a": torch.ones(2), "b": Attack(mark)}))
    assert not mark.exists()


@pytest.mark.parametrize("cut", [0, 1, 10, 100, -1, -100])
@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_a_file_cut_off_is_refused(cut: int, form: str) -> None:
    content = saved(NET.state_dict(), _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(NotTorchFile):
        read_state_dict(content[:cut])


@given(st.binary(max_size=400))
def test_any_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(NotTorchFile):
        read_state_dict(content)


def test_a_model_in_half_precision_is_cast_and_said() -> None:
    half = {name: value.half() if value.is_floating_point() else value for name, value in NET.state_dict().items()}
    pieces, cast = model_pieces(half, LAYOUT)
    assert sum(map(len, pieces)) == len(ORIGINAL) - len(LAYOUT.header)
    assert cast == {(torch.float16, torch.float32)}


@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, lambda value: value.to("meta"), torch.Tensor.to_mkldnn])
def test_weights_that_are_no_plain_tensor_are_named(change: Any) -> None:
    state = {**NET.state_dict(), "2.weight": change(torch.ones(2, 4))}
    with pytest.raises(RunFault) as raised:
        model_pieces(state, LAYOUT)
    assert raised.value.detail == {"kind": "storage", "tensor": "2.weight"}
