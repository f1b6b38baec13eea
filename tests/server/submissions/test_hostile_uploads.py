"""Uploads made to hang or to crash what reads them at upload: each is taken or refused, in little time."""

import contextlib
import json
import time

import pytest

from lethe.errors import InvalidSubmission
from lethe.submission.package import load_package
from tests.support.instance import make_zip

FUNCTION = "def unlearning(net, retain, forget, val):\n    return net\n"
# Hours for a reader that goes through all of it again from each of its lines, under a second for one that does not.
MANY, LINES = 500_000, 8000
WITHIN_S = 60.0
DEEP = 2500  # levels: the parser takes them, a reader in Python that recurses does not

HOSTILE = {
    "empty lines": "\n" * MANY + FUNCTION,
    "spaces before a magic's mark": FUNCTION + "a" + " " * MANY + "!ls",
    "cell magics on one another": "%%time\n" * LINES + FUNCTION,
    "magics in a block": FUNCTION + "if True:\n" + " !ls\n" * LINES,
    "magics in a string": FUNCTION + "'''\n" + "!ls\n" * LINES,
    "definitions": FUNCTION + "def f(): x\n" * 4000,
    "a chain of names": "".join(f"x{i} = x{i - 1}\n" for i in range(1, 4000))
    + "def unlearning(net, retain, forget, val):\n    return x3999\n",
    "a deep sum": FUNCTION + "x = " + "+".join("a" * DEEP),
    "deep attributes": FUNCTION + "x = a" + ".b" * DEEP,
    "a deep function": f"def unlearning(net, retain, forget, val):\n    return {'lambda: ' * DEEP}1\n",
    "deep lists": FUNCTION + "x = " + "[" * LINES + "]" * LINES,
}


def make_notebook(source: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": source}], "nbformat": 4, "metadata": {}}).encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_is_taken_or_refused_soon(name: str) -> None:
    began = time.process_time()
    for filename, data in (("a.ipynb", make_notebook(HOSTILE[name])), ("a.py", HOSTILE[name].encode())):
        with contextlib.suppress(InvalidSubmission):
            load_package(data, filename, modes=("function", "notebook"))
    assert time.process_time() - began < WITHIN_S


@pytest.mark.parametrize("name", ["a deep sum", "deep attributes", "a deep function"])
def test_deep_code_is_refused_however_it_is_read(name: str) -> None:
    for filename, data in (("a.ipynb", make_notebook(HOSTILE[name])), ("a.py", HOSTILE[name].encode())):
        with pytest.raises(InvalidSubmission, match="deeper than 200 levels"):
            load_package(data, filename)


def test_deep_description_is_refused() -> None:
    description = b"file = " + b"[" * LINES + b"]" * LINES
    with pytest.raises(InvalidSubmission, match="TOML"):
        load_package(make_zip({"submission.py": FUNCTION.encode(), "submission.toml": description}), "a.zip")


TOO_DEEP = 200_000  # Python 3.14 reads 50,000 levels of JSON, which fit its stack


def test_deep_json_is_refused() -> None:
    with pytest.raises(InvalidSubmission, match="not JSON"):
        load_package(b'{"cells": ' + b"[" * TOO_DEEP + b"]" * TOO_DEEP + b"}", "a.ipynb")
