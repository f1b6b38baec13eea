"""Torch files are read without building anything but tensors; everything else is refused, nothing is called."""

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sandbox.guest.notebook.torch_files import NotTorchFile, read_state_dict

NET = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))


def saved(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


SHARED = torch.arange(4.0)
STATES = {
    "plain": NET.state_dict(),
    "half": {name: value.half() if value.is_floating_point() else value for name, value in NET.state_dict().items()},
    "bfloat16": {"a": torch.ones(3, dtype=torch.bfloat16)},
    "parameters": dict(NET.named_parameters()),
    "views of one storage": {"a": torch.arange(12).view(3, 4).t(), "b": torch.arange(12)[3:7]},
    "shared": {"a": SHARED, "b": SHARED[1:]},
    "empty tensor": {"a": torch.empty(0, 3), "b": torch.tensor(3)},
    "bool": {"a": torch.tensor([True, False])},
}


@pytest.mark.parametrize("form", ["zip", "legacy"])
@pytest.mark.parametrize("name", STATES)
def test_what_torch_saves_is_read_to_the_bit(name: str, form: str) -> None:
    state = STATES[name]
    found = read_state_dict(saved(state, _use_new_zipfile_serialization=form == "zip"))
    assert set(found.refs) == set(state)
    for key, value in state.items():
        assert torch.equal(found.tensor(key), value)
        assert found.tensor(key).dtype == value.dtype
        assert found.tensor(key).is_contiguous()


@pytest.mark.parametrize(
    "value",
    [
        NET,
        [torch.ones(2)],
        {"state_dict": NET.state_dict()},
        {"a": torch.ones(2), "epoch": 3},
        {},
        5,
        {1: torch.ones(2)},
    ],
    ids=["module", "list", "nested", "number among them", "empty", "number", "no names"],
)
def test_what_is_no_state_dict_is_refused(value: Any) -> None:
    with pytest.raises(NotTorchFile):
        read_state_dict(saved(value))


class Attack:
    """Runs a command when it is unpickled in the usual way."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_nothing_that_a_file_names_is_called(tmp_path: Path, form: str) -> None:
    mark = tmp_path / "called"
    content = saved({"a": torch.ones(2), "b": Attack(mark)}, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(NotTorchFile):
        read_state_dict(content)
    assert not mark.exists()
    torch.load(io.BytesIO(content), weights_only=False)
    assert mark.exists()  # the file does what it says when it is loaded in the usual way


def test_a_view_past_its_bytes_is_refused() -> None:
    content = bytearray(saved({"a": torch.ones(4)}))
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    name = next(name for name in entries if name.endswith("data.pkl"))
    entries[name] = entries[name].replace(b"K\x04\x85", b"J\x00\x00\x00\x40\x85")  # shape (2**30,)
    forged = io.BytesIO()
    with zipfile.ZipFile(forged, "w") as archive:
        for entry, data in entries.items():
            archive.writestr(entry, data)
    found = read_state_dict(forged.getvalue())
    assert found.refs["a"].shape == (2**30,)
    with pytest.raises(NotTorchFile, match="past the bytes"):
        found.tensor("a")


@pytest.mark.parametrize("cut", [0, 1, 10, 100, -1, -100])
@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_a_file_cut_off_is_refused(cut: int, form: str) -> None:
    content = saved(NET.state_dict(), _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(NotTorchFile):
        read_state_dict(content[:cut])


def test_compressed_tensors_are_refused() -> None:
    with zipfile.ZipFile(io.BytesIO(saved({"a": torch.zeros(1000)}))) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in entries.items():
            archive.writestr(entry, data)
    with pytest.raises(NotTorchFile, match="compressed"):
        read_state_dict(packed.getvalue())


@pytest.mark.parametrize(
    "opcode",
    [b"S'\\ '\n", b"P1\n", b"\x95", b"\xff", b"ctorch\n\\K\n", b"ctorch\nSize", b"(itorch\n\\K\n"],
    ids=["STRING", "PERSID", "FRAME", "none", "GLOBAL", "GLOBAL-cut", "INST"],
)
def test_what_torch_never_writes_is_refused_without_a_warning(opcode: bytes) -> None:
    forged = io.BytesIO()
    with zipfile.ZipFile(forged, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + opcode + b".")
    with pytest.raises(NotTorchFile):
        read_state_dict(forged.getvalue())


def test_a_length_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    forged = tmp_path / "model.pt"
    forged.write_bytes(b"\x80\x04\x8e" + struct.pack("<Q", 2**45) + b"x.")  # BINBYTES8
    with pytest.raises(NotTorchFile):
        read_state_dict(forged)


@given(st.binary(max_size=400))
def test_any_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(NotTorchFile):
        read_state_dict(content)


@given(st.data())
@settings(max_examples=200)
def test_a_damaged_description_is_read_or_refused(data: st.DataObject) -> None:
    good = pickle.dumps({"a": [1, (2, "x")], "b": {"c": None}}, protocol=2)
    position = data.draw(st.integers(0, len(good) - 1))
    content = good[:position] + data.draw(st.binary(min_size=1, max_size=6)) + good[position + 1 :]
    forged = io.BytesIO()
    with zipfile.ZipFile(forged, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    with pytest.raises(NotTorchFile):
        read_state_dict(forged.getvalue())
