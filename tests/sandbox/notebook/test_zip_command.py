"""The sandbox's own `zip` takes what notebooks say to it."""

import zipfile
from pathlib import Path

import pytest

from sandbox.guest.notebook.children import zip_files


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
    assert zip_files(words) == 0
    assert members() == expected


def test_a_second_call_adds_and_an_absolute_path_loses_its_slash(folder: Path) -> None:
    assert zip_files(["-m", "out.zip", "a.pth"]) == zip_files(["out.zip", str(folder / "b.pth")]) == 0
    assert members() == {"a.pth", str(folder / "b.pth").lstrip("/")}
    assert not (folder / "a.pth").exists()


@pytest.mark.parametrize("words", [[], ["out.zip"], ["out.zip", "missing"]])
def test_nothing_to_do_is_an_error(folder: Path, words: list[str]) -> None:
    assert zip_files(words) == 12
    assert not Path("out.zip").exists()
