from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lethe.data import files
from lethe.data.errors import DamagedSplit, SplitNotPrepared
from lethe.data.files import read_json, read_tensors, write_tensors, write_text


def test_tied_tensors_are_written_as_two(tmp_path: Path) -> None:
    tied = torch.arange(4.0)
    write_tensors(tmp_path / "x.safetensors", {"a": tied, "b": tied, "c": tied[:2]})
    read = load_file(tmp_path / "x.safetensors")
    assert read["a"].tolist() == read["b"].tolist() == [0, 1, 2, 3]
    assert read["c"].tolist() == [0, 1]


def test_a_write_cut_off_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.zeros(3)})

    def half_a_file(_tensors: object, part: Path, **_: object) -> None:
        part.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(files, "save_file", half_a_file)
    with pytest.raises(OSError, match="no space"):
        write_tensors(path, {"a": torch.ones(3)})
    assert read_tensors(path)["a"].tolist() == [0, 0, 0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SplitNotPrepared, match=r"x\.safetensors does not exist"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(SplitNotPrepared, match=r"x\.json does not exist"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(DamagedSplit, match=r"x\.safetensors is damaged"):
        read_tensors(tmp_path / "x.safetensors")


def test_damaged_json_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "x.json", "{")
    with pytest.raises(DamagedSplit, match=r"x\.json is damaged"):
        read_json(tmp_path / "x.json")
