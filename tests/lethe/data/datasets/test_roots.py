"""Datasets come from the configured folders, and nothing that is read leaves them."""

from pathlib import Path

import numpy as np
import pytest

from lethe.competition.file import Dataset
from lethe.data.datasets.registry import datasets_below, open_dataset
from lethe.data.errors import InvalidDataset


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Two folders for datasets, the second with one; beside them, a file of the host's."""
    found = [tmp_path / "a", tmp_path / "b"]
    mine = found[1] / "mine"
    mine.mkdir(parents=True)
    found[0].mkdir()
    np.save(mine / "images.npy", np.zeros((4, 8, 8), np.uint8))
    np.save(mine / "labels.npy", np.array([0, 1, 0, 1]))
    (tmp_path / "credentials.json").write_text('{"password": "of the administrator"}')
    return found


def opened(name: str, roots: list[Path], **options: str) -> int:
    with datasets_below(roots):
        return len(open_dataset(Dataset(name=name, options=options)))


def test_relative_root_is_looked_up_in_each_folder(roots: list[Path]) -> None:
    assert opened("numpy", roots, root="mine") == 4


def test_administrators_absolute_root_is_read_as_it_stands(roots: list[Path]) -> None:
    assert opened("numpy", [roots[0]], root=str(roots[1] / "mine")) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"root": ".."},
        {"root": "mine/../.."},
        {"root": "mine", "table": "../../credentials.json"},
        {"root": "mine", "table": "/etc/passwd.csv"},
        {"root": "mine", "table": "credentials.json"},
        {"root": "mine", "cache": "elsewhere"},
        {"root": "none"},
    ],
)
def test_path_that_leaves_the_folders_is_refused(roots: list[Path], options: dict[str, str]) -> None:
    with pytest.raises(InvalidDataset) as caught:
        opened("folder", roots, **options)
    assert "password" not in caught.value.detail


@pytest.mark.parametrize("inside", ["", "mine/persons.npy", "mine/deep"])
def test_link_that_leaves_the_folders_is_refused(roots: list[Path], inside: str) -> None:
    link = roots[1] / (inside or "linked")
    link.symlink_to(roots[1].parent / "credentials.json" if inside else roots[1].parent)
    with pytest.raises(InvalidDataset, match="leads out of the folders"):
        opened("numpy", roots, root="mine" if inside else "linked")


def test_link_into_another_folder_is_followed(roots: list[Path]) -> None:
    (roots[0] / "linked").symlink_to(roots[1] / "mine")
    assert opened("numpy", roots, root="linked") == 4


def test_text_that_is_no_table_is_not_quoted(roots: list[Path]) -> None:
    (roots[1] / "mine" / "x.csv").write_text('{"password": "of the administrator"}\n1\n')
    with pytest.raises(InvalidDataset, match="no column 'path'") as caught:
        opened("folder", roots, root="mine", table="x.csv")
    assert "administrator" not in caught.value.detail
