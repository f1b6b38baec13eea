"""A notebook's files: the stream of its models, what torch saved, and the sandbox's own `zip`."""

import io
import os
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from lethe.runtime.entry import RunFault
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
from sandbox.guest.notebook.checkpoints import NoTensors, NotTorchFile, model_pieces, read_state_dict
from sandbox.guest.notebook.zip_command import main
from sandbox.pidfd import ProcessHandle
from sandbox.supervisor import RunWatch
from tests.sandbox.conftest import TEST_POLICY

HEADER = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
FILE_START = struct.pack("<Q", len(HEADER)) + HEADER
STREAM_LAYOUT: WeightsLayout = read_layout(FILE_START + bytes(8))


def model(value: float) -> bytes:
    return FILE_START + struct.pack("<2f", value, value)


def reader(wanted: int = 2, stop_after: int | None = None) -> tuple[CheckpointReader, dict[int, bytes]]:
    models: dict[int, bytes] = {}
    run = NotebookRun(wanted, models.__setitem__, stop_after=stop_after)
    return CheckpointReader(STREAM_LAYOUT, run, max_abs_weight=1e3), models


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
    assert found.wanted_bytes <= max(STREAM_LAYOUT.frame_bytes + 8, 1 << 16, 4 << 20)


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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "deep").mkdir()
    for name in ("a.pth", "b.pth", "deep/c.pth", "temp.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def members(path: str = "out.zip") -> set[str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return set(archive.namelist())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["out.zip", "a.pth", "b.pth"], {"a.pth", "b.pth"}),
        (["-q", "out", "a.pth"], {"a.pth"}),
        (["-r", "out.zip", "."], {"a.pth", "b.pth", "deep/c.pth", "temp.txt"}),
        (["-r", "out.zip", ".", "-x", "*.txt"], {"a.pth", "b.pth", "deep/c.pth"}),
        (["-rqj9", "out.zip", "deep", "a.pth"], {"c.pth", "a.pth"}),
        (["-0", "--junk-paths", "out.zip", "deep/c.pth"], {"c.pth"}),
        (["out.zip", "a.pth", "missing.pth"], {"a.pth"}),
        (["-n", ".pth", "out.zip", "a.pth"], {"a.pth"}),
    ],
)
def test_members_are_those_asked_for(folder: Path, words: list[str], expected: set[str]) -> None:
    assert main(words) == 0
    assert members() == expected


def test_an_absolute_path_loses_its_slash(folder: Path) -> None:
    assert main(["out.zip", str(folder / "a.pth")]) == 0
    assert members() == {str(folder / "a.pth").lstrip("/")}


def test_a_second_call_adds(folder: Path) -> None:
    main(["out.zip", "a.pth"])
    main(["out.zip", "a.pth", "b.pth"])
    assert members() == {"a.pth", "b.pth"}


def test_move_removes_the_files(folder: Path) -> None:
    main(["-m", "out.zip", "a.pth"])
    assert not (folder / "a.pth").exists()


@pytest.mark.parametrize("words", [[], ["out.zip"], ["out.zip", "missing"]])
def test_nothing_to_do_is_an_error(folder: Path, words: list[str]) -> None:
    assert main(words) == 12
    assert not Path("out.zip").exists()
