"""What strangers wrote steers no terminal; one bar over several steps never goes back, and a log gets lines."""

import io
import json
import sys
import threading

import httpx
import pytest
from rich.table import Table
from rich.text import Text

from lethe.cli import api_command, output
from lethe.cli.output import OverallProgress, Terminal, accept_any_letter, print_facts, print_json, print_table
from lethe.cli.submission_commands import _print_submission
from lethe.errors import InvalidInput

HOSTILE = "a\x1b]0;title\x07\x9b31m\x1b[2Jb\u202e\rc"


@pytest.mark.parametrize("shape", ["text", "table", "styled", "title"])
@pytest.mark.parametrize("colours", [False, True])
def test_control_characters_are_written_as_escapes(shape: str, colours: bool) -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, width=200, force_terminal=colours, color_system="truecolor" if colours else None)
    table = Table("name", HOSTILE)
    table.add_row("x", HOSTILE)
    shown = {"text": HOSTILE, "table": table, "styled": Text(HOSTILE, style="red"), "title": Table(title=HOSTILE)}[
        shape
    ]
    terminal.print("one\ntwo", shown)
    written = file.getvalue()
    assert written.startswith("one\ntwo")
    for command in ("\x1b]", "\x07", "\x9b", "\x1b[2J", "\u202e", "\r"):
        assert command not in written
    assert ("\x1b[31m" in written) == (colours and shape == "styled"), "its own colours stay"


@pytest.mark.parametrize("text", ["[bold]x[/]", "[/nope]", "[?] :smile:"])
def test_brackets_in_tables_are_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ("message",), [[text]], empty="")
    print_facts([("message", text)])
    assert capsys.readouterr().out.count(text) == 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_terminals_of_any_encoding_take_all_letters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    accept_any_letter()
    print_table("Größe", ("team", "✓"), [["Ωmega", "…"]], empty="")
    print_facts([("Größe", "Ωmega")])
    sys.stdout.flush()
    start = len(written.getvalue())
    print_json({"team": "Ωmega"})
    sys.stdout.flush()
    assert b"mega" in written.getvalue()[:start]
    assert json.loads(written.getvalue()[start:].decode(encoding)) == {"team": "Ωmega"}


@pytest.mark.parametrize(("width", "whole"), [(80, True), (60, False)])
def test_numbers_and_their_headers_stay_whole_where_there_is_room(monkeypatch, capsys, width, whole):
    monkeypatch.setattr(output.console, "width", width)
    row = (1, "the forgetful elephants of Gothenburg", "0.91234", "91.2 %", "0.01234", 12, "2026-11-29")
    columns = ("rank#", "team", "score#", "of the\noracle#", "accuracy_\ngap#", "entries#", "last#")
    print_table("", columns, [row], empty="")
    shown = capsys.readouterr().out
    assert ("…" not in shown) == whole
    assert "forge" in shown, "words keep some room"
    if whole:
        assert all(word in shown for word in ("oracle", "accuracy_", "entries", "0.91234", "2026-11-29", "Gothenburg"))


def answer(kind: str, content: bytes) -> httpx.Response:
    return httpx.Response(200, content=content, headers={"content-type": kind})


def test_a_terminal_gets_no_control_characters(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    api_command._print(answer("text/plain; charset=utf-8", b"before\x1b[2Jafter"))
    assert "before\\x1b[2Jafter" in capsys.readouterr().out
    with pytest.raises(InvalidInput, match="a file of 2 bytes"):
        api_command._print(answer("application/zip", b"PK"))


def test_a_pipe_gets_the_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    api_command._print(answer("text/csv", b"a,b\n\x1b"))
    api_command._print(answer("application/zip", b"PK\xff"))
    api_command._print(answer("application/json", b""))
    assert capfdbinary.readouterr().out == b"a,b\n\x1bPK\xff"


FAILED = {
    "id": "1234",
    "filename": "mine.ipynb",
    "stage": "failed",
    "progress": None,
    "score": None,
    "refunded": False,
    "received_at": None,
}


@pytest.mark.parametrize(
    ("message", "told"), [("It broke. See mine.ipynb, cell 2, line 3.", False), ("It broke.", True), ("", True)]
)
def test_a_place_that_the_message_names_is_not_told_twice(message, told, capsys):
    failure = {"error_class": "exception", "file": "cell-02.py", "line": 3, "message": message}
    _print_submission(FAILED | {"failure": failure}, {}, as_json=False)
    assert ("cell-02.py, line 3" in capsys.readouterr().out) is told


Shown = tuple[tuple[float, float], ...]


@pytest.mark.parametrize(
    ("shown", "at", "said"),
    [
        (((0.5, 0.0), (0.6, 5.0), (0.7, 20.0)), 20.0, "about 30 s left"),  # half of it was done before
        (((0.0, 0.0), (0.5, 60.0)), 60.0, "about 1 min 00 s left"),
        (((0.0, 0.0), (0.5, 60.0)), 80.0, "about 1 min 20 s left"),  # it grows gently while nothing moves
        (((0.25, 0.0), (0.25, 9.0)), 9.0, "not known yet"),
        (((0.0, 0.0), (0.5, 1.0)), 1.0, "not known yet"),
    ],
)
def test_time_left_is_of_what_this_command_did(shown: Shown, at: float, said: str) -> None:
    now = [0.0]
    progress = OverallProgress({"training": 1.0}, console=Terminal(file=io.StringIO()), clock=lambda: now[0])
    for share, now[0] in shown:
        progress.show("training", share)
    now[0] = at
    assert said in progress.line()


def test_steps_fill_one_bar_that_never_goes_back() -> None:
    progress = OverallProgress({"prepare": 30.0, "evaluate": 10.0}, console=Terminal(file=io.StringIO()))
    progress.show("prepare", 0.5)
    assert progress.line().startswith(" 38 %")
    progress.show("evaluate", 0.0, "noise: queued")
    assert progress.line().startswith(" 75 %")
    assert progress.line().endswith("noise: queued")
    progress.show("prepare", 0.1)
    assert progress.line().startswith(" 75 %")


def test_a_log_gets_lines_with_the_time_left() -> None:
    printed, now = threading.Event(), [0.0]

    class Log(io.StringIO):
        def write(self, text: str) -> int:
            if "about 10 s left" in text:
                printed.set()
            return super().write(text)

    steps = {"training": 1.0}
    log = Log()
    with OverallProgress(steps, console=Terminal(file=log), every_s=0.001, clock=lambda: now[0]) as progress:
        for second in range(11):
            now[0] = float(second)
            progress.show("training", second / 20, "model 3 of 6")
        assert printed.wait(60)
    assert " 50 %, about 10 s left: model 3 of 6\n" in log.getvalue()
