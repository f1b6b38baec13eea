"""Notebooks are read as JSON, taken apart and refused with the cell's line; nothing of them runs."""

import ast
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InvalidSubmission
from lethe.submission.notebook import Mode, code_cells, is_python, to_python
from lethe.submission.package import load_package
from tests.support.notebooks import notebook

BOTH: tuple[Mode, ...] = ("function", "notebook")

FUNCTION = "def unlearning(net, retain_loader, forget_loader, val_loader):\n    pass\n"

LOOP = "import torch\nfor i in range(512):\n    torch.save({}, f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')\n"


def refused(data: bytes) -> InvalidSubmission:
    with pytest.raises(InvalidSubmission) as caught:
        load_package(data, "mine.ipynb")
    return caught.value


ONCE = "# lethe: mode = notebook\n"
OWN = "class Own:\n    def __init__(self, table):\n        self.targets = table['age_group']\n"
STYLED = "def unlearning(net, retain, forget, val, class_weights=None):\n    for x, y in retain:\n        net(x)\n"
IMPORTS = "import numpy, no_such\nfrom nothing.at_all import x\nfrom sklearn import svm\n"


@pytest.mark.parametrize(
    ("cells", "modes", "expected"),
    [
        ((FUNCTION, LOOP), BOTH, {"mode": "function", "program": "saves", "notes": ()}),
        ((FUNCTION,), BOTH, {"mode": "function", "program": "defines"}),
        ((LOOP,), ("function",), {"program": "saves"}),  # it needs no function
        ((LOOP,), ("notebook",), {"mode": "notebook"}),
        ((ONCE + FUNCTION, LOOP), BOTH, {"mode": "notebook", "program": ""}),
        *(
            ((FUNCTION, saving), BOTH, {"program": "saves"})
            for saving in (
                "import torch as t\nt.save({}, 'x')",
                "from torch import save as keep\nkeep({}, 'x')",
                "get_ipython().run_cell_magic('writefile', 'x.py', 'import torch\\ntorch.save(1, 2)')",
                "!cp weights.pth /kaggle/tmp/unlearned_checkpoint_0.pth",
            )
        ),
        ((OWN, STYLED), BOTH, {"style": "tuple", "keywords": ("class_weights",)}),
    ],
)
def test_what_is_run_of_a_notebook(cells: tuple[str, ...], modes: tuple[Mode, ...], expected: dict[str, Any]) -> None:
    found = load_package(notebook(*cells), "mine.ipynb", modes=modes)
    assert found.kind == "ipynb"
    assert {name: getattr(found.entry_point, name) for name in expected} == expected
    if expected.get("program") == "saves":
        assert found.files["cell-01.py"] == cells[0].encode(), "unchanged"


def test_modules_that_are_not_installed_are_named() -> None:
    found = load_package(notebook(IMPORTS + FUNCTION), "mine.ipynb", modes=BOTH)
    assert [note.split()[0] for note in found.entry_point.notes] == ["no_such", "nothing"]


def test_a_mode_that_is_not_allowed_is_refused() -> None:
    assert "allows function" in refused(notebook("# lethe: mode = notebook\n" + FUNCTION)).detail
    assert "must be function or notebook" in refused(notebook("# lethe: mode = all\n" + FUNCTION)).detail
    with pytest.raises(InvalidSubmission, match="only notebooks"):
        load_package(FUNCTION.encode(), "mine.py", modes=("notebook",))


def test_a_kaggle_script_is_taken_as_a_notebook_of_one_cell() -> None:
    code = FUNCTION + LOOP
    found = load_package(code.encode(), "mine.py")
    assert found.entry_point.program == "saves"
    assert found.files == {"cell-01.py": code.encode()}


def test_a_syntax_error_names_cell_and_line() -> None:
    error = refused(notebook(FUNCTION, "x = 1\ny = = 2\n"))
    assert "cell 2" in error.detail
    assert error.violations[0].line == 2
    wrong = refused(notebook("x = 1\ny = 2\n", "z = 3\ndef unlearning(net): pass\n"))
    assert wrong.detail.startswith("mine.ipynb, cell 2, line 2: unlearning takes 1 positional arguments")


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"cells": 3}',
        b'{"cells": [{"cell_type": "code", "source": 5}]}',
        b'{"cells": [{"cell_type": "code", "source": "a\\u0000"}]}',
        b'{"cells": [{"cell_type": "code", "source": "\\ud800"}]}',
        b'{"worksheets": 1}',
        b"[" * 100_000,
        notebook("x", language_info={"name": "R"}),
        json.dumps({"cells": [{"cell_type": "code", "source": "(" * 100_000}]}).encode(),
    ],
)
def test_what_is_no_notebook_is_refused(data: bytes) -> None:
    refused(data)


def test_an_old_notebook_is_read() -> None:
    old = {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": FUNCTION, "language": "python"}]}]}
    assert code_cells(json.dumps(old).encode(), shown_as="old.ipynb") == [FUNCTION]


KEYS = st.sampled_from(["cells", "source", "cell_type", "metadata", "worksheets", "code", "language_info"])

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_any_json_is_read_or_refused(value: object) -> None:
    with suppress(InvalidSubmission):
        assert code_cells(json.dumps(value).encode(), shown_as="any.ipynb")


BODY = (
    "lr = 0.5\n!ls\nfor i in range(512):\n    unlearning(net, r, f, v)\n    torch.save(net.state_dict(), f'u{i}.pth')\n"
)

EXPORT = f"""\
import torch
get_ipython().run_cell_magic('capture', 'out', 'decay = 3\\n')
def unlearning(net, r, f, v):
    return decay
get_ipython().run_cell_magic('time', '', {BODY!r})
get_ipython().run_cell_magic('writefile', 'x.py', 'x = 1')
"""


def test_cells_that_an_export_holds_as_texts_are_run() -> None:
    found = load_package(EXPORT.encode(), "export.py")
    lines = found.files["cell-01.py"].decode().split("\n")
    assert lines[1] == "get_ipython().run_text('decay = 3\\n')"
    assert "get_ipython().system(" in lines[4]
    assert found.entry_point.program == "saves"


def test_a_script_that_reads_the_input_by_a_relative_path_is_an_export() -> None:
    script = "import torch\nopen('../input/x/retain.csv')\ntorch.save({}, 'u.pth')\n"
    assert load_package(script.encode(), "s.py", modes=("notebook",)).entry_point.mode == "notebook"


@pytest.mark.parametrize(
    ("cell", "meant"),
    [
        ("!du -sh /kaggle/tmp", "get_ipython().system('du -sh /kaggle/tmp', {**globals(), **locals()})"),
        ("!!ls", "get_ipython().system('ls', {**globals(), **locals()})"),
        ("%matplotlib inline", "get_ipython().run_line_magic('matplotlib', 'inline')"),
        ("%time x = f()", "x = f()"),
        ("files = !ls *.pth", "files = get_ipython().getoutput('ls *.pth', {**globals(), **locals()})"),
        ("net?", "pass"),
        ("%%time\nx = 1", "\nx = 1"),
        ("# first\n%%capture out\n!ls", "# first\n\nget_ipython().system('ls', {**globals(), **locals()})"),
        ("%%bash\nls\ndu", "get_ipython().system('ls\\ndu', {**globals(), **locals()})\n\n"),
        ("%%writefile a.py\nx = 1", "get_ipython().run_cell_magic('writefile', 'a.py', 'x = 1')\n"),
        *((cell, cell) for cell in ("x = 1\n", "x = (10\n     % 3)\n", "x = y = 5 % 2", "")),
        *((cell, cell) for cell in ('text = """\n!not a command\n%not a magic\n"""\n',)),
    ],
)
def test_additions_become_calls_and_python_is_left_alone(cell: str, meant: str) -> None:
    assert to_python(cell) == meant


def test_a_command_in_a_loop_keeps_its_indentation_and_lines() -> None:
    cell = 'for i in range(3):\n    text = """\n!in a string\n"""\n    !du -sh \\\n        /kaggle/tmp\n    print(i)\n'
    python = to_python(cell)
    assert is_python(python)
    assert "!in a string" in python
    assert python.count("\n") == cell.count("\n")
    loop = ast.parse(python).body[0]
    assert isinstance(loop, ast.For)
    assert len(loop.body) == 3
    assert not is_python(to_python("!ls\nx = = 1")), "what is neither is left for the parser"
