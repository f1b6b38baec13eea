"""`lethe data`: what is found where, and whether it is what its makers published."""

import gzip
import hashlib
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lethe.cli import data_commands
from lethe.cli.main import build_app
from lethe.data import catalogue
from lethe.data.datasets.registry import adapters
from lethe.errors import InvalidInput
from lethe.huggingface.results import InvalidTaskData


def run(*words: str):
    return CliRunner().invoke(build_app(), ["data", *words])


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small MNIST in its makers' format, one file packed, with its own hashes in the catalogue."""
    folder = tmp_path / "root" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    hashes = {}
    for part, n in (("train", 20), ("t10k", 10)):
        arrays = {"images-idx3": np.zeros((n, 28, 28), np.uint8), "labels-idx1": np.arange(n, dtype=np.uint8) % 10}
        for kind, array in arrays.items():
            header = struct.pack(">I", 0x800 + array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
            name, content = f"{part}-{kind}-ubyte", header + array.tobytes()
            hashes[name] = hashlib.sha256(content).hexdigest()
            if part == "train":
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
    files = tuple(catalogue.DataFile(name, sha256=value) for name, value in hashes.items())
    small = catalogue.BY_NAME["mnist"]
    monkeypatch.setitem(data_commands.BY_NAME, "mnist", replace(small, files=files))
    return tmp_path / "root"


def test_list_says_where_each_is_found(mnist):
    found = {each["name"]: each["found"] for each in json.loads(run("list", "--root", str(mnist), "--json").output)}
    assert found["mnist"] == str(mnist / "MNIST/raw")
    assert (found["digits"], found["cifar10"]) == ("built in", "")
    assert found.keys() >= {"tofu", "muse", "wmdp", "rwku"}
    assert set(catalogue.BY_NAME) <= set(adapters())


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("fashion-mnist", ("MIT", "dataset-fashion-mnist", "30 MiB", "train-images-idx3-ubyte")),
        ("semeval", ("mia_data/member", "document", "2504.02883")),
    ],
)
def test_show_names_licence_source_files_and_hashes(name, parts):
    text = run("show", name).output
    assert all(part in text for part in parts)


def test_check_opens_an_intact_data_set(mnist):
    found = run("check", "mnist", "--root", str(mnist))
    assert found.exit_code == 0, found.output
    assert found.output.count("as published") == 4
    assert "1 x 28 x 28" in found.output


@pytest.mark.parametrize("damage", ["changed", "missing", "truncated"])
def test_check_names_a_wrong_file_and_where_to_get_it(mnist, damage):
    path = mnist / "MNIST/raw/train-images-idx3-ubyte.gz"
    if damage == "changed":
        path.write_bytes(gzip.compress(b"other"))
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:20])
    found = run("check", "mnist", "--root", str(mnist))
    assert found.exit_code == 3
    assert "train-images-idx3-ubyte" in found.output
    assert "Get MNIST from https://" in found.output


def test_what_is_built_in_needs_no_folder_and_an_unknown_name_is_answered():
    found = run("check", "digits", "--option", "noise=0.5")
    assert (found.exit_code, "1797" in found.output) == (0, True)
    unknown = run("show", "imagenet")
    assert isinstance(unknown.exception, InvalidInput)
    assert "fashion-mnist" in unknown.exception.detail


def test_check_reads_the_files_of_a_language_task(tmp_path: Path):
    (tmp_path / "wmdp_bio.jsonl").write_text(json.dumps({"question": "Who?", "choices": ["a", "b"], "answer": 0}))
    assert "wmdp_bio.jsonl: 1 rows" in run("check", "wmdp", "--root", str(tmp_path)).output
    found = run("check", "rwku", "--root", str(tmp_path))
    assert found.exit_code != 0
    with pytest.raises(InvalidTaskData, match=r"holds none of rwku_forget_level1"):
        raise found.exception
