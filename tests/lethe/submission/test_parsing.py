"""What Python says of a participant's text, and what is shown of it beside a failure."""

import ast
import contextlib
import json
import threading
import warnings

import pytest

from lethe.runtime.error_classes import last_traceback, place_beside
from lethe.submission import parsing
from lethe.submission.entry_point import find_entry_point
from lethe.submission.notebook import code_cells, saves_models
from lethe.submission.parsing import parse_python

DOUBTFUL = 'PATTERN = "\\d+"\n'  # no escape of Python's: it warns, with each release louder

FUNCTION = "def unlearning(net, retain_loader, forget_loader, val_loader):\n    return '\\d'\n"


def test_the_doubtful_text_is_what_python_warns_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SyntaxError):
            ast.parse(DOUBTFUL)


def test_doubtful_code_is_parsed_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        tree = parse_python(DOUBTFUL, filename="secret_name.py")
    assert isinstance(tree.body[0], ast.Assign)
    assert heard == []
    assert capfd.readouterr().err == ""


def test_one_text_is_parsed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that change the process's filters at once may leave each other's behind."""
    together = threading.Barrier(2)

    def slow_parse(*_: object, **__: object) -> ast.Module:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(timeout=0.1)
            met.append(True)
        return ast.Module([], [])

    met: list[bool] = []
    monkeypatch.setattr(parsing.ast, "parse", slow_parse)
    threads = [threading.Thread(target=parse_python, args=("x = 1",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not met


def test_uploads_with_suspicious_code_are_accepted_silently() -> None:
    text = DOUBTFUL + FUNCTION
    cell = {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
    book = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert find_entry_point({"submission.py": text.encode()}).function == "unlearning"
        cells = code_cells(book, shown_as="a.ipynb")
        assert not saves_models([parse_python(cell) for cell in cells])
    assert heard == []


def test_place_stands_beside_a_message_without_it() -> None:
    assert place_beside("It broke after 14 epochs.", file="mine.py", line=4) == " (mine.py, line 4)"


def test_place_is_not_told_twice() -> None:
    assert place_beside("It broke. See mine.py, line 4.", file="mine.py", line=4) == ""
    assert place_beside("It broke. See mine.py, line 41.", file="mine.py", line=4) == " (mine.py, line 4)"


def test_place_that_is_unknown_is_left_out() -> None:
    assert place_beside("It broke.", file="", line=0) == place_beside("It broke.", file=None, line=None) == ""


FIRST = "Traceback (most recent call last):\n  File 'a'\nKeyError: 1"

SECOND = "Traceback (most recent call last):\n  File 'b'\nValueError: 2\n  with a second line"


def test_the_last_traceback_is_shown_whole() -> None:
    assert last_traceback(f"epoch 1\n{FIRST}\nepoch 2\n{SECOND}\n") == SECOND


def test_what_led_to_it_is_shown_as_well() -> None:
    chained = f"{FIRST}\n\nDuring handling of the above exception, another exception occurred:\n\n{SECOND}"
    assert last_traceback(f"epoch 1\n{chained}\n") == chained


def test_without_a_traceback_the_end_is_shown() -> None:
    assert last_traceback("\n".join(map(str, range(100)))).split() == [str(n) for n in range(80, 100)]
