"""Runs with original models of their own: each starts from its own, and finds no other."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from sandbox.errors import InvalidRequest
from sandbox.frame_reader import NotebookRun
from sandbox.launcher import RunRequest, Sandbox

from .conftest import GOOD, MakeOriginal, write_submission

UNCHANGED = "def unlearning(net, retain, forget, validation): pass\n"
LOOK = """
import os

def unlearning(net, retain, forget, validation):
    print(sorted(os.listdir("/data")))
    for folder in ("/stage", "/submission"):
        try:
            print(sorted(os.listdir(folder)))
        except OSError as error:
            print(type(error).__name__)
    try:
        open("/data/original_model.safetensors", "r+b")
    except OSError as error:
        print(type(error).__name__)
    shown = open("/data/original_model.safetensors", "rb").read()
    for parameter in net.parameters():
        assert parameter.detach().numpy().tobytes() in shown
"""


def test_each_run_gets_exactly_its_own_original(sandbox: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "unchanged", UNCHANGED)
    files = [original(index) for index in range(3)]
    results = [sandbox.run(RunRequest(code_dir=folder, run=run, original=path)) for run, path in enumerate(files)]
    assert [result.weights for result in results] == [path.read_bytes() for path in files], results[0].verdict
    assert len({result.weights for result in results}) == 3


def test_run_sees_only_its_own_original(sandbox: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "looks", LOOK)
    own, _other = original(0), original(1)
    result = sandbox.run(RunRequest(code_dir=folder, original=own, kind="sample"))
    assert result.weights == own.read_bytes(), result.log
    sets = ["forget", "retain", "validation"]
    data = sorted(["network.json", "original_model.safetensors", *(f"{name}.safetensors" for name in sets)])
    listed, stage_seen, code_seen, written = result.log.decode().splitlines()
    assert listed == str(data)
    assert stage_seen in ("PermissionError", "FileNotFoundError")
    assert code_seen == "['submission.py']"
    assert written in ("PermissionError", "OSError")


def test_the_next_run_without_one_starts_from_the_splits_own(sandbox, split, stage, original):
    folder = write_submission(stage, "unchanged", UNCHANGED)
    sandbox.run(RunRequest(code_dir=folder, original=original(0)))
    splits = (split / "original_model.safetensors").read_bytes()
    assert sandbox.run(RunRequest(code_dir=folder)).weights == splits


def test_split_model_as_original_gives_the_same_bits(sandbox: Sandbox, split: Path, stage: Path) -> None:
    folder = write_submission(stage, "good", GOOD)
    copy = Path(shutil.copy(split / "original_model.safetensors", stage / "copy.safetensors"))
    plain = sandbox.run(RunRequest(code_dir=folder, seed=5)).weights
    assert plain is not None
    assert sandbox.run(RunRequest(code_dir=folder, seed=5, original=copy)).weights == plain


def test_an_original_elsewhere_is_refused(sandbox: Sandbox, split: Path, stage: Path) -> None:
    folder = write_submission(stage, "unchanged", UNCHANGED)
    with pytest.raises(InvalidRequest, match="must be a file below"):
        sandbox.run(RunRequest(code_dir=folder, original=split / "original_model.safetensors"))


def test_an_original_with_other_tensors_is_refused(sandbox: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "unchanged", UNCHANGED)
    other = original(0)
    save_file({name.upper(): value for name, value in load_file(other).items()}, other)
    with pytest.raises(InvalidRequest, match="has other tensors"):
        sandbox.run(RunRequest(code_dir=folder, original=other))
    short = original(1)
    short.write_bytes(short.read_bytes()[:-4])
    with pytest.raises(InvalidRequest, match="has other tensors"):
        sandbox.run(RunRequest(code_dir=folder, original=short))


def test_a_notebook_has_no_original_for_each_run(sandbox: Sandbox, stage: Path, original: MakeOriginal) -> None:
    folder = write_submission(stage, "unchanged", UNCHANGED)
    notebook = NotebookRun(2, lambda _slot, _weights: None)
    with pytest.raises(InvalidRequest, match="from one original"):
        sandbox.run(RunRequest(code_dir=folder, original=original(0), notebook=notebook))
