"""Margins in EasyDUB's layout become the sides of an evaluation."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lethe
from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from lethe.reference.easydub import read_easydub

TRAIN, FORGOTTEN, TEST = 12, np.array([3, 7, 8]), 5


def save(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values.astype(np.float32))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    margins = tmp_path / "data" / "margins" / "cifar10"
    for model in range(36):
        sizes = {"retain": TRAIN - len(FORGOTTEN), "forget": len(FORGOTTEN), "val": TEST}
        for part, size in sizes.items():
            file = margins / "oracle" / "forget_2" / part / "resnet9" / f"id_{model}_epoch_23.npy"
            save(file, random.normal(size=size))
    for model in range(18):
        name = f"resnet9/id_{model}_epoch_23.npy"
        save(margins / "pretrain" / "forget_2" / name, 2.0 + random.normal(size=len(FORGOTTEN)))
        save(margins / "pretrain" / "retain" / name, np.arange(TRAIN))
        save(margins / "pretrain" / "val" / name, random.normal(size=TEST))
    forget_set = tmp_path / "data" / "forget_sets" / "cifar10" / "forget_set_2.npy"
    forget_set.parent.mkdir(parents=True)
    np.save(forget_set, FORGOTTEN)
    return tmp_path / "data"


def test_sides_are_evaluated_by_klom(root: Path, tmp_path: Path) -> None:
    sides = read_easydub(root, forget_set=2)
    assert {side: arrays["confidences"].shape for side, arrays in sides.items()} == {
        "retrained": (18, 3), "oracle": (18, 3), "original": (18, 3),
    }  # fmt: skip
    assert sides["original"]["retain_margins"][0].tolist() == [0, 1, 2, 4, 5, 6, 9, 10, 11]
    first = np.load(root / "margins/cifar10/oracle/forget_2/forget/resnet9/id_18_epoch_23.npy")
    assert sides["oracle"]["confidences"][0].tolist() == first.tolist()
    found = lethe.evaluate(
        sides["original"], sides["retrained"], oracle=sides["oracle"], metrics=["klom", "klom_retain", "klom_test"]
    )
    assert found["klom"].result.value > found["klom"].oracle.value
    assert all(one.result is not None for one in found.values())
    words = ["reference", "easydub", str(root), str(tmp_path / "out"), "--forget-set", "2"]
    assert "18 models, 3 forget examples" in CliRunner().invoke(build_app(), words).stdout
    again = lethe.evaluate(tmp_path / "out" / "original.npz", tmp_path / "out" / "retrained.npz", metrics="klom")
    assert again["klom"].result.value == found["klom"].result.value


def test_last_epoch_counts(root: Path) -> None:
    path = root / "margins/cifar10/oracle/forget_2/forget/resnet9/id_0_epoch_24.npy"
    save(path, np.array([1.0, 2.0, 3.0]))
    assert read_easydub(root, forget_set=2, n_models=2)["retrained"]["confidences"][0].tolist() == [1.0, 2.0, 3.0]


def test_what_is_missing_or_does_not_fit_is_named(root: Path) -> None:
    with pytest.raises(InvalidInput, match=r"forget_3/forget/resnet9 has no margins"):
        read_easydub(root, forget_set=3)
    with pytest.raises(InvalidInput, match="has 36 models; 60 are needed"):
        read_easydub(root, forget_set=2, n_models=30)
    np.save(root / "forget_sets/cifar10/forget_set_2.npy", np.array([3, 7]))
    with pytest.raises(InvalidInput, match="are 10, not the 9 of the retrained models"):
        read_easydub(root, forget_set=2)
    np.save(root / "forget_sets/cifar10/forget_set_2.npy", np.array([99]))
    with pytest.raises(InvalidInput, match="positions beyond the 12 examples"):
        read_easydub(root, forget_set=2)
    (root / "margins/cifar10/oracle/forget_2/val/resnet9/id_1_epoch_23.npy").write_bytes(b"no array")
    with pytest.raises(InvalidInput, match=r"id_1_epoch_23\.npy cannot be read as an array"):
        read_easydub(root, forget_set=2)
