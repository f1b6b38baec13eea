"""Model outputs in .npz files: written, read again, and refused by name."""

from pathlib import Path

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.npz_files import load_outputs, save_outputs
from lethe.metrics.scoring.score import ModelOutputs

CONFIDENCES = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("accuracies", [(None, None), (np.array([0.5, 1.0]), np.array([0.25, 0.75]))])
def test_what_is_saved_is_loaded(tmp_path: Path, accuracies: tuple[np.ndarray | None, np.ndarray | None]) -> None:
    save_outputs(tmp_path / "o.npz", ModelOutputs(CONFIDENCES, *accuracies))
    found = load_outputs(tmp_path / "o.npz")
    assert (found.confidences == CONFIDENCES).all()
    for loaded, saved in zip((found.retain_accuracy, found.test_accuracy), accuracies, strict=True):
        assert (loaded is None) if saved is None else (np.asarray(loaded) == saved).all()


def pickled(path: Path) -> None:
    np.savez(path, confidences=np.array([{}], dtype=object))


def shortened(path: Path) -> None:
    np.savez(path, confidences=CONFIDENCES)
    path.write_bytes(path.read_bytes()[:-30])


def single(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, CONFIDENCES)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: None, "cannot be read as a .npz file of plain arrays"),
        (lambda path: path.write_bytes(b"no archive"), "cannot be read as a .npz file of plain arrays"),
        (shortened, "cannot be read as a .npz file of plain arrays"),
        (pickled, "cannot be read as a .npz file of plain arrays"),
        (single, "holds a single array without a name"),
        (lambda path: np.savez(path, logits=CONFIDENCES), "has no array 'confidences', only ['logits']"),
        (np.savez, "has no array 'confidences', only nothing"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, write, said: str) -> None:
    path = tmp_path / "o.npz"
    write(path)
    with pytest.raises(InvalidScoreInput) as refused:
        load_outputs(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
