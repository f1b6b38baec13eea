"""The sandbox's own `zip` takes what notebooks say to it."""

import zipfile
from pathlib import Path

import pytest

from sandbox.guest.notebook.zip_command import main


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
    assert main(words) == 0
    assert members() == expected


def test_an_absolute_path_loses_its_slash(folder: Path) -> None:
    assert main(["out.zip", str(folder / "a.pth")]) == 0
    assert members() == {str(folder / "a.pth").lstrip("/")}


def test_a_second_call_adds(folder: Path) -> None:
    main(["out.zip", "a.pth"])
    main(["out.zip", "a.pth", "b.pth"])
    assert members() == {"a.pth", "b.pth"}


def test_move_removes_the_files(folder: Path) -> None:
    main(["-m", "out.zip", "a.pth"])
    assert not (folder / "a.pth").exists()


@pytest.mark.parametrize("words", [[], ["out.zip"], ["out.zip", "missing"]])
def test_nothing_to_do_is_an_error(folder: Path, words: list[str]) -> None:
    assert main(words) == 12
    assert not Path("out.zip").exists()
