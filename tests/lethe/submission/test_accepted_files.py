"""What a worker makes of a submission that was accepted: what was accepted, whatever is refused or left out today."""

import io
import json
import zipfile

import pytest

from lethe.submission.package import LineEdits, accepted_files, as_it_is_run, load_package

FUNCTION = "def unlearning(net, retain_loader, forget_loader, val_loader, epochs=1):\n    net.requires_grad_()\n"
LOOP = "import torch\nfor i in range(512):\n    torch.save(net.state_dict(), f'unlearned_checkpoint_{i}.pth')\n"
GUARDED = b"import torch\nassert torch.cuda.is_available()\n" + FUNCTION.encode()


def notebook(*cells: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()


@pytest.mark.parametrize("data", [notebook(FUNCTION, LOOP), notebook(FUNCTION)])
def test_accepted_files_are_those_of_the_upload(data: bytes) -> None:
    found = load_package(data, "mine.ipynb")
    stored = json.loads(json.dumps(found.entry_point.as_data()))
    assert accepted_files(data, "mine.ipynb", stored) == found.files
    assert as_it_is_run(data, "mine.ipynb", stored) == stored


def test_notebook_that_was_accepted_with_edits_keeps_them() -> None:
    data, edits = notebook(FUNCTION, LOOP), {"emptied": [[2, 1, 3]], "replaced": [[2, 2, "epochs = 5"]]}
    stored = {"file": "notebook.py", "function": "unlearning", "mode": "function", "edits": edits}
    assert accepted_files(data, "mine.ipynb", stored)["cell-02.py"] == b"\nepochs = 5\n\n"
    assert as_it_is_run(data, "mine.ipynb", stored) == stored


@pytest.mark.parametrize("more", [{}, {"edits": None}])
def test_notebook_that_was_accepted_without_edits_is_run_as_it_is(more: dict[str, None]) -> None:
    stored = {"file": "notebook.py", "function": "unlearning", "mode": "function", **more}
    for cells, program in (((FUNCTION, LOOP), "saves"), ((FUNCTION,), "defines")):
        data = notebook(*cells)
        assert as_it_is_run(data, "mine.ipynb", stored)["program"] == program
        assert accepted_files(data, "mine.ipynb", stored) == load_package(data, "mine.ipynb").files


def test_notebook_that_runs_once_goes_on_doing_so() -> None:
    stored = {"file": "notebook.py", "function": "unlearning", "mode": "notebook"}
    assert as_it_is_run(notebook(LOOP), "mine.ipynb", stored) == stored


def test_guards_that_were_left_out_stay_so() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("submission.py", GUARDED)
        archive.writestr("helper.py", GUARDED)
    line = {"cell": 0, "first_line": 2, "last_line": 2}
    parts = [line | {"reason": reason} for reason in ("gives up", "in helper.py: gives up")]
    stored = {"file": "submission.py", "function": "unlearning", "mode": "function", "left_out": parts}
    files = accepted_files(content.getvalue(), "mine.zip", stored)
    assert set(files.values()) == {b"import torch\n\n" + FUNCTION.encode()}
    assert accepted_files(GUARDED, "mine.py", stored | {"left_out": []}) == {"submission.py": GUARDED}


def test_script_of_an_earlier_version_is_not_taken_for_an_export() -> None:
    script = b"PATH = '../input/data'\n" + FUNCTION.encode() + b"def save(net, i):\n    torch.save(net, f'{i}.pth')\n"
    assert load_package(script, "mine.py").entry_point.file == "notebook.py"
    stored = {"file": "submission.py", "function": "unlearning", "mode": "function"}
    assert accepted_files(script, "mine.py", stored) == {"submission.py": script}
    assert as_it_is_run(script, "mine.py", stored) == stored


def test_edits_name_ranges_of_lines_and_new_text() -> None:
    edits = LineEdits(emptied=((1, 2, 3),), replaced=((1, 4, "d; f"),))
    assert edits.apply(["a\nb\nc\nd", "e"]) == ["a\n\n\nd; f", "e"]
