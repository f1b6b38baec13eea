"""IPython's additions become plain calls; Python stays as it is."""

import ast

import pytest

from lethe.submission.ipython_magics import is_python, to_python


@pytest.mark.parametrize(
    "cell", ["x = 1\n", 'text = """\n!not a command\n%not a magic\n"""\n', "x = (10\n     % 3)\n", "x = y = 5 % 2", ""]
)
def test_python_is_left_alone(cell: str) -> None:
    assert to_python(cell) == cell


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
    ],
)
def test_additions_become_calls(cell: str, meant: str) -> None:
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


def test_what_is_neither_is_left_for_the_parser() -> None:
    assert not is_python(to_python("!ls\nx = = 1"))
