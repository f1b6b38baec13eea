"""New dataset: a small archive is opened, and one that does not fit is named."""

from pathlib import Path

import numpy as np
import pytest

from lethe.cli.templates.new_dataset import open_new_dataset
from lethe.data.errors import InvalidDataset


def test_new_dataset_is_opened(tmp_path: Path) -> None:
    images = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 1, 4, 4)
    np.savez(tmp_path / "images.npz", images=images, labels=np.array([0, 1, 0]))
    opened = open_new_dataset({"root": tmp_path}).checked()
    assert (opened.images == images).all()
    assert opened.labels.tolist() == [0, 1, 0]
    assert opened.n_classes == 2


def test_new_dataset_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match=r"images\.npz"):
        open_new_dataset({"root": tmp_path})


def test_new_dataset_names_a_missing_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "images.npz", images=np.zeros((1, 1, 2, 2), np.uint8))
    with pytest.raises(InvalidDataset, match="the arrays images and labels"):
        open_new_dataset({"root": tmp_path})


def test_new_dataset_has_no_further_options(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match=r"dataset\.options\.size"):
        open_new_dataset({"root": tmp_path, "size": 3})
