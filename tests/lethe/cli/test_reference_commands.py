"""`lethe reference`: a key, an export, a check, a fetch, and margins of EasyDUB."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.reference.bundle import InvalidReference


def invoke(*words: object) -> str:
    """Return what the command prints; its error is raised."""
    done = CliRunner().invoke(build_app(), ["reference", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_split_goes_out_signed_and_comes_back(prepared: Path, tmp_path: Path) -> None:
    key = invoke("key", tmp_path / "key.pem").strip()
    file = tmp_path / "small.zip"
    words = ("--licence", "CC0-1.0", "--sign", tmp_path / "key.pem", "--json")
    exported = json.loads(invoke("export", prepared, file, *words))
    assert exported["signed_by"] == key
    assert exported["has_checkpoints"] is False
    with pytest.raises(InvalidReference, match="no key is named"):
        invoke("verify", file)
    assert json.loads(invoke("verify", file, "--key", key, "--json")) == exported | {"path": None}
    assert f"--split {tmp_path / 'got'}" in invoke("fetch", file, tmp_path / "got", "--key", key).replace("\n", "")
    assert (tmp_path / "got" / "hidden" / "oracle" / "outputs.safetensors").is_file()


def test_margins_of_easydub_become_files(tmp_path: Path) -> None:
    for folder in ("oracle/forget_1/forget", "oracle/forget_1/retain", "oracle/forget_1/val", "pretrain/forget_1",
                   "pretrain/retain", "pretrain/val"):  # fmt: skip
        for model in range(4):
            path = tmp_path / "data" / "margins" / "cifar10" / folder / "resnet9" / f"id_{model}_epoch_23.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.arange(3.0))
    assert "2 models, 3 forget examples" in invoke("easydub", tmp_path / "data", tmp_path / "out", "--forget-set", 1)
    assert np.load(tmp_path / "out" / "oracle.npz")["test_margins"].shape == (2, 3)
