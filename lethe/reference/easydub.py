"""Margins that others computed already, in the layout of EasyDUB (data-unlearning-bench).

    forget_sets/DATA/forget_set_ID.npy                          positions in the training set
    margins/DATA/oracle/forget_ID/{retain,forget,val}/NET/id_M_epoch_E.npy     of models trained without the forget set
    margins/DATA/pretrain/{retain,val}/NET/id_M_epoch_E.npy                    of models trained with all
    margins/DATA/pretrain/forget_ID/NET/id_M_epoch_E.npy

A margin is z_c - log sum_(j != c) exp z_j, which is log(p / (1 - p)), the confidence of Lethe. Source of the layout:
EasyDUB-code, easydub/data.py.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.errors import InvalidInput

Arrays = dict[str, NDArray[Any]]
DATA, NETWORK = "cifar10", "resnet9"
SETS = {"confidences": "forget", "retain_margins": "retain", "test_margins": "val"}
MODEL = re.compile(r"id_(\d+)_epoch_(\d+)\.npy")


def read_easydub(root: Path, *, forget_set: int, n_models: int | None = None) -> dict[str, Arrays]:
    """Return the arrays of `retrained`, `oracle` and `original` models by side, as `lethe.evaluate` takes them.

    root: the data set's folder. forget_set: its number. n_models: N; the first N oracles are the retrained models, the
    next N the oracle, by default half of those that are there. Each side has `confidences` [N, S], `retain_margins`
    [N, R] and `test_margins` [N, T]; `original` are models trained with the forget set.
    Raises InvalidInput naming the file that is missing or does not fit.
    """
    base = root / "margins" / DATA
    oracles = {name: _models(base / "oracle" / f"forget_{forget_set}" / part / NETWORK) for name, part in SETS.items()}
    originals = {
        name: _models(base / "pretrain" / (f"forget_{forget_set}" if part == "forget" else part) / NETWORK)
        for name, part in SETS.items()
    }
    size = n_models or len(oracles["confidences"]) // 2
    sides = {
        "retrained": {name: _rows(files, range(size)) for name, files in oracles.items()},
        "oracle": {name: _rows(files, range(size, 2 * size)) for name, files in oracles.items()},
        "original": {name: _rows(files, range(size)) for name, files in originals.items()},
    }
    _leave_out_forgotten(sides, root / "forget_sets" / DATA / f"forget_set_{forget_set}.npy")
    return sides


def write_sides(sides: Mapping[str, Arrays], folder: Path) -> None:
    """Write each side as SIDE.npz into a new folder. Raises InvalidInput if it is there already."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InvalidInput(f"{folder} must be a new folder: {error.strerror}") from error
    for side, arrays in sides.items():
        np.savez(folder / f"{side}.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub takes `allow_pickle` here


def _models(folder: Path) -> list[Path]:
    """Return the file of each model in the order of their numbers, of its last epoch. Raises InvalidInput."""
    last: dict[int, tuple[int, Path]] = {}
    for path in folder.glob("id_*_epoch_*.npy"):
        if found := MODEL.fullmatch(path.name):
            number, epoch = int(found[1]), int(found[2])
            last[number] = max(last.get(number, (-1, path)), (epoch, path))
    if not last:
        raise InvalidInput(f"{folder} has no margins (id_NUMBER_epoch_NUMBER.npy)")
    return [last[number][1] for number in sorted(last)]


def _rows(files: list[Path], wanted: range) -> NDArray[np.float64]:
    if len(files) < wanted.stop:
        raise InvalidInput(
            f"{files[0].parent} has {len(files)} models; {wanted.stop} are needed: give fewer with n_models"
        )
    rows = [_array(files[number]) for number in wanted]
    if len({row.shape for row in rows}) > 1 or rows[0].ndim != 1:
        raise InvalidInput(f"the margins in {files[0].parent} are not one number for each of the same examples")
    return np.stack(rows).astype(np.float64)


def _array(path: Path) -> NDArray[Any]:
    try:
        found: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(f"{path} cannot be read as an array: {error}") from error
    return found


def _leave_out_forgotten(sides: Mapping[str, Arrays], path: Path) -> None:
    """Take the forget set out of the original models' retain margins, which are of all training examples."""
    wanted = sides["retrained"]["retain_margins"].shape[1]
    original = sides["original"]
    if original["retain_margins"].shape[1] == wanted:
        return
    kept = np.ones(original["retain_margins"].shape[1], bool)
    try:
        kept[_array(path).astype(np.int64)] = False
    except IndexError as error:
        raise InvalidInput(f"{path} has positions beyond the {kept.size} examples of the original models") from error
    if kept.sum() != wanted:
        raise InvalidInput(
            f"{kept.size} retain examples of the original models without {path} are {kept.sum()}, not the {wanted} of "
            "the retrained models"
        )
    original["retain_margins"] = original["retain_margins"][:, kept]
