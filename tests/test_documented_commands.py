"""Every `lethe` command of the documentation exists, with its options; and the notebook of examples/python runs."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.markup import render

from lethe.cli.main import build_app
from server.main import create_app
from tests.support.forked_children import run_code

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
CODE = re.compile(r"`((?:[^`\s]*/)?lethe [^`]+)`")
GROUPS = ("competition", "methods", "new", "rejudge", "benchmark", "data", "reference")
IN_BLOCK = re.compile(r"(?:^|[$&;(]\s*|\s)((?:\.venv/bin/)?lethe [a-z-].*)")


def commands_in(text: str) -> Iterator[str]:
    """Yield every command line of a page: of code blocks, and in the text between backticks."""
    in_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif in_code and (found := IN_BLOCK.match(line)):
            yield found[1].partition("  #")[0].strip()
        elif not in_code:
            yield from CODE.findall(line)


def commands_in_tables(text: str) -> Iterator[str]:
    """Yield every command of the tables that name some after the first in short, and options after a command."""
    for cell in re.findall(r"^\| (`lethe .*?) \| ", text.replace("\\|", "¦"), re.MULTILINE):
        first, *others = re.findall(r"`([^`]+)`", cell)
        group = first.split()[:2] if first.split()[1] in GROUPS else ["lethe"]
        line = first
        for code in others:
            line = f"{line} {code}" if code.startswith("-") else " ".join([*group, code])
            yield line


def faults(command_line: str, root: Any) -> list[str]:
    """Return what of a command line does not exist. Optional parts in brackets count as given, `a|b` as both."""
    words = shlex.split(re.sub(r"[\[\]…]|\.\.\.", " ", command_line.replace("`", "")))[1:]
    first = next((number for number, word in enumerate(words) if "|" in word and not word.startswith("-")), None)
    if first is not None and first <= 2:
        return [
            fault
            for choice in words[first].split("|")
            for fault in faults(shlex.join(["lethe", *words[:first], choice, *words[first + 1 :]]), root)
        ]
    command, rest = root, words
    while (children := getattr(command, "commands", None)) and rest and not rest[0].startswith("-"):
        if rest[0] not in children:
            return [f"{command_line}: there is no command {rest[0]!r}"]
        command, rest = children[rest[0]], rest[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    asked = {word.partition("=")[0] for word in rest if re.match(r"--?[A-Za-z]", word)}
    return [f"{command_line}: there is no option {option}" for option in sorted(asked - known - {"--help"})]


def all_commands(command: Any, *path: str) -> Iterator[list[str]]:
    """Yield the words of every command below this one."""
    children = getattr(command, "commands", None)
    if children is None:
        yield list(path)
    for name, child in (children or {}).items():
        yield from all_commands(child, *path, name)


@pytest.fixture(scope="module")
def root() -> Any:
    return typer.main.get_command(build_app())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_exist(page: Path, root: Any) -> None:
    assert [fault for line in commands_in(page.read_text("utf-8")) for fault in faults(line, root)] == []


def test_commands_named_in_short_exist(root: Any) -> None:
    lines = list(commands_in_tables((ROOT / "docs/participants/commands.md").read_text("utf-8")))
    assert "lethe competition create FILE --prepare --no-upload" in lines
    assert [fault for line in lines for fault in faults(line, root)] == []


def test_page_of_commands_has_every_command(root: Any) -> None:
    text = (ROOT / "docs/participants/commands.md").read_text("utf-8")
    named = [line.split()[1:] for line in (*commands_in(text), *commands_in_tables(text))]
    missing = [path for path in all_commands(root) if not any(words[: len(path)] == path for words in named)]
    assert missing == []


def test_missing_commands_and_options_are_noticed(root: Any) -> None:
    assert faults("lethe submit FILE [-m NOTE] [--wait]", root) == []
    assert faults("lethe benchmark table|plot|check X", root) == []
    assert "no command 'foretell'" in faults("lethe competition foretell", root)[0]
    assert "no option --foretell" in faults("lethe submit x.py --foretell", root)[0]


def test_documented_requests_exist(root: Any) -> None:
    routes = {
        (method.upper(), re.compile(re.sub(r"\{\w+\}", "[^/]+", path.removeprefix("/api/v1"))))
        for path, methods in create_app().openapi()["paths"].items()
        for method in methods
    }
    lines = [line for page in PAGES for line in commands_in(page.read_text("utf-8")) if line.startswith("lethe api ")]
    asked = {(line.split()[2], line.split()[3]) for line in lines if line.split()[2:] != ["METHOD", "PATH"]}
    assert len(asked) > 50
    unknown = {
        each for each in asked if not any(each[0] == known and path.fullmatch(each[1]) for known, path in routes)
    }
    assert unknown == set()


def test_help_loses_no_word_to_markup(root: Any) -> None:
    lost, waiting = [], [root]
    while waiting:
        command = waiting.pop()
        waiting += (getattr(command, "commands", None) or {}).values()
        for said in [command.help, *(getattr(parameter, "help", None) for parameter in command.params)]:
            if said and (shown := render(said).plain) != said.replace("\\[", "["):
                lost.append((command.name, shown))
    assert lost == []


NOTEBOOK = Path(__file__).parents[1] / "examples" / "python" / "first_score.ipynb"
SHOW = """
import json, os, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shown = []
for cell in json.load(sys.stdin):
    done = shell.run_cell(cell)
    done.raise_error()
    shown.append(shell.display_formatter.format(done.result)[0].get("text/html", ""))
json.dump(shown, open(os.environ["SHOWN"], "w"))
"""


def cells(tag: str | None = None) -> list[str]:
    """Return the code cells that have a tag, or those that have none."""
    found = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in found if cell["metadata"].get("tags", []) == ([tag] if tag else [])]


def test_notebook_runs_and_shows_tables(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    own = dict.fromkeys(("HOME", "IPYTHONDIR"), str(tmp_path)) | {"SHOWN": str(tmp_path / "shown.json")}
    said = run_code(SHOW, standard_input=json.dumps(cells()), MPLBACKEND="agg", **own)
    shown = json.loads((tmp_path / "shown.json").read_text())
    assert any("<td>klom</td>" in html for html in shown)
    assert any("<td>oracle</td>" in html for html in shown)
    assert "# my-model" in said


def test_notebook_is_stored_without_outputs_and_installs_once() -> None:
    document = json.loads(NOTEBOOK.read_text("utf-8"))
    assert not [cell for cell in document["cells"] if cell.get("outputs")]
    (install,) = cells("install")
    assert install.startswith("%pip install")
