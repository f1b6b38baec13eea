"""The tutorials of docs/developers, executed word for word in a copy of the checkout.

A block of `sh` is run, line by line. A block of Python or TOML is the content of the file that the paragraph
before it names last; Python without a file is run.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import ROOT, copy_checkout, run

TUTORIALS = sorted((ROOT / "docs" / "developers").glob("add-your-*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w/.-]+\.(?:py|toml))`")


def steps(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield language, content and file ("" where none is named) of each block."""
    end = 0
    for block in BLOCK.finditer(text):
        paragraph = text[end : block.start()].strip().rpartition("\n\n")[2]
        named = [] if block[1] == "sh" else FILE.findall(paragraph)
        yield block[1], block[2], named[-1] if named else ""
        end = block.end()


def execute(language: str, content: str, file: str, *, folder: Path) -> None:
    """Do what a reader does with a block."""
    if file:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content, encoding="utf-8")
    elif language == "sh":
        for line in content.splitlines():
            execute_line(line, folder=folder)
    elif language == "python":
        run("python", "-c", content, folder=folder)
    else:
        raise ValueError(f"nobody knows what to do with a block of {language or 'no language'}: {content[:200]}")


def execute_line(line: str, *, folder: Path) -> None:
    """Run a line of a shell: one program, whose output may go to a file."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    file = words[-1] if words[-2:-1] == [">"] else ""
    command = words[:-2] if file else words
    if any(set(word) <= set(lexer.punctuation_chars) for word in command):
        raise ValueError(f"a line is `PROGRAM ARGUMENT ...`, with or without `> FILE`, not {line!r}")
    said = run(*command, folder=folder)
    if file:
        (folder / file).write_text(said, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a dozen commands, however busy the machine is
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_works_word_for_word(tutorial: Path, tmp_path: Path) -> None:
    folder = copy_checkout(tmp_path / "lethe", types=False)
    for language, content, file in steps(tutorial.read_text("utf-8")):
        execute(language, content, file, folder=folder)
        if file.endswith(".py"):
            run("ruff", "format", "--no-cache", "--check", file, folder=folder)


def test_every_tutorial_has_commands_and_files() -> None:
    assert {path.stem for path in TUTORIALS} == {"add-your-dataset", "add-your-method", "add-your-metric"}
    for path in TUTORIALS:
        found = list(steps(path.read_text("utf-8")))
        assert any(language == "sh" for language, _, _ in found)
        assert any(file for _, _, file in found)


@pytest.mark.parametrize(
    ("content", "error"),
    [("true\nfalse\ntrue", AssertionError), ("true && true", ValueError), ("true > a > b", ValueError)],
)
def test_line_that_fails_or_is_more_than_a_program_is_noticed(content: str, error: type, tmp_path: Path) -> None:
    with pytest.raises(error):
        execute("sh", content, "", folder=tmp_path)
