"""The notebook of examples/python: its cells run in order, in a process of their own, and show results."""

import json
from pathlib import Path

import pytest

from tests.support.forked_children import run_code

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
