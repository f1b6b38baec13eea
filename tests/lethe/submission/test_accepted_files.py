"""What a worker makes of a submission that was accepted: what was accepted, whatever is refused or left out today."""

import json

import pytest

from lethe.errors import InvalidSubmission
from lethe.submission import line_edits, package
from lethe.submission.line_edits import LineEdits
from lethe.submission.notebook_slicing import Sliced
from lethe.submission.package import accepted_files, load_package

FUNCTION = "def unlearning(net, retain_loader, forget_loader, val_loader, epochs=1):\n    net.requires_grad_()\n"
LOOP = """\
import torch
for i in range(512):
    {before}
    unlearning(net, a, b, c{further})
    torch.save(net.state_dict(), f"{{i}}.pth")
"""


def notebook(*cells: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()


@pytest.mark.parametrize(
    "cells",
    [
        (FUNCTION, LOOP.format(before="net = make()", further="")),
        (FUNCTION, LOOP.format(before="net = make()", further=", epochs=5")),
        ("x = 1; table = [1]\n" + FUNCTION, "net = make(); x = 2\n" + LOOP.format(before="pass", further="") + "x = 3"),
    ],
)
def test_accepted_files_are_those_of_the_upload(cells: tuple[str, ...]) -> None:
    data = notebook(*cells)
    found = load_package(data, "mine.ipynb")
    stored = json.loads(json.dumps(found.entry_point.as_data()))
    assert accepted_files(data, "mine.ipynb", stored) == found.files


def test_accepted_notebook_is_not_sliced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = notebook(FUNCTION, LOOP.format(before="net = make()", further=""))
    found = load_package(data, "mine.ipynb")

    def other_rules(cells: list[str], function: str, *, is_accepted: bool = False) -> Sliced:
        raise AssertionError("the notebook was judged again")

    monkeypatch.setattr(package, "without_own_loop", other_rules)
    assert accepted_files(data, "mine.ipynb", found.entry_point.as_data()) == found.files


def test_notebook_of_an_earlier_version_keeps_its_arguments_and_is_not_refused() -> None:
    stored = {"file": "notebook.py", "function": "unlearning", "mode": "function"}
    passing = notebook(FUNCTION, LOOP.format(before="net = make()", further=", epochs=5"))
    files = accepted_files(passing, "mine.ipynb", stored)
    assert files["cell-02.py"].strip() == b""
    training = notebook(FUNCTION, LOOP.format(before="net.fc = torch.nn.Linear(2, 2)", further=""))
    with pytest.raises(InvalidSubmission):
        load_package(training, "mine.ipynb")
    assert accepted_files(training, "mine.ipynb", stored)["cell-02.py"].strip() == b""


def test_edits_beyond_what_is_kept_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_edits, "MOST_TEXT", 10)
    data = notebook(FUNCTION, LOOP.format(before="net = make()", further=", epochs=5"))
    found = load_package(data, "mine.ipynb")
    stored = found.entry_point.as_data()
    assert stored["edits"] is None
    assert accepted_files(data, "mine.ipynb", stored) == found.files


def test_script_and_zip_have_their_guards_taken_out_as_at_the_upload() -> None:
    guarded = b"import torch\nassert torch.cuda.is_available()\n" + FUNCTION.encode()
    found = load_package(guarded, "mine.py")
    assert found.entry_point.left_out
    assert accepted_files(guarded, "mine.py", found.entry_point.as_data()) == found.files


def test_script_of_an_earlier_version_is_not_taken_for_an_export() -> None:
    script = b"PATH = '../input/data'\n" + FUNCTION.encode() + b"def save(net, i):\n    torch.save(net, f'{i}.pth')\n"
    assert load_package(script, "mine.py").entry_point.file == "notebook.py"
    stored = {"file": "submission.py", "function": "unlearning", "mode": "function"}
    assert accepted_files(script, "mine.py", stored) == {"submission.py": script}


def test_edits_name_ranges_of_lines_and_new_text() -> None:
    before, after = ["a\nb\nc\nd", "e"], ["a\n\n\nd; f", "e"]
    edits = LineEdits.between(before, after)
    assert edits == LineEdits(emptied=((1, 2, 3),), replaced=((1, 4, "d; f"),))
    assert edits.apply(before) == after
