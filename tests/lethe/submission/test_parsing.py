"""What Python says of a participant's text and what is shown of it; a zip's requirements against what is installed."""

import ast
import contextlib
import sys
import threading
import warnings

import pytest

from lethe.runtime.error_classes import last_traceback, place_beside
from lethe.submission import parsing
from lethe.submission.entry_point import find_entry_point
from lethe.submission.libraries import LIBRARIES, OLDER_SETS
from lethe.submission.notebook import code_cells, saves_models
from lethe.submission.package import load_package
from lethe.submission.parsing import parse_python
from lethe.submission.requirements import unmet_requirements
from scripts import library_pages
from tests.support.instance import make_zip
from tests.support.notebooks import notebook

DOUBTFUL = 'PATTERN = "\\d+"\n'  # no escape of Python's: it warns, with each release louder

FUNCTION = "def unlearning(net, retain_loader, forget_loader, val_loader):\n    return '\\d'\n"


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


def test_doubtful_uploads_are_read_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(SyntaxWarning if sys.version_info >= (3, 12) else DeprecationWarning):
        ast.parse(DOUBTFUL)
    text = DOUBTFUL + FUNCTION
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert find_entry_point({"submission.py": text.encode()}).function == "unlearning"
        cells = code_cells(notebook(text), shown_as="a.ipynb")
        assert not saves_models([parse_python(cell) for cell in cells])
    assert heard == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("message", "file", "line", "place"),
    [
        ("It broke after 14 epochs.", "mine.py", 4, " (mine.py, line 4)"),
        ("It broke. See mine.py, line 4.", "mine.py", 4, ""),
        ("It broke. See mine.py, line 41.", "mine.py", 4, " (mine.py, line 4)"),
        ("It broke.", "", 0, ""),
        ("It broke.", None, None, ""),
    ],
)
def test_place_is_told_once(message: str, file: str | None, line: int | None, place: str) -> None:
    assert place_beside(message, file=file, line=line) == place


FIRST = "Traceback (most recent call last):\n  File 'a'\nKeyError: 1"

SECOND = "Traceback (most recent call last):\n  File 'b'\nValueError: 2\n  with a second line"


def test_the_last_traceback_is_shown_whole() -> None:
    assert last_traceback(f"epoch 1\n{FIRST}\nepoch 2\n{SECOND}\n") == SECOND
    chained = f"{FIRST}\n\nDuring handling of the above exception, another exception occurred:\n\n{SECOND}"
    assert last_traceback(f"epoch 1\n{chained}\n") == chained, "what led to it as well"
    assert last_traceback("\n".join(map(str, range(100)))).split() == [str(n) for n in range(80, 100)]


def test_the_list_and_its_page_are_those_of_the_lock() -> None:
    for path, text in library_pages.files().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m scripts.library_pages"


def test_what_the_server_alone_needs_is_not_listed() -> None:
    assert not {"celery", "fastapi", "sqlalchemy", "psycopg", "alembic"} & set(LIBRARIES)
    needed = {"torch", "scipy", "requests", "matplotlib", "transformers", "pydantic", "httpx", "pyyaml", "protobuf"}
    assert needed <= set(LIBRARIES)


@pytest.mark.parametrize(
    "line", ["torch", "numpy>=1.20  # arrays", "-r other.txt", "", "scikit_learn>1", "wheel; python_version < '3'"]
)
def test_what_is_installed_needs_no_note(line: str) -> None:
    assert unmet_requirements(line) == ()


def test_what_is_not_installed_is_answered_with_what_is() -> None:
    notes = unmet_requirements("torch==1.13.1\nfairlearn\ngit+https://example.org/x\n")
    assert notes[0] == f"requirements.txt: torch==1.13.1 is asked for, {LIBRARIES['torch']} is installed"
    assert notes[1] == "requirements.txt: fairlearn is no listed library, and a run has no network to install it"
    assert "not understood" in notes[2]


def test_a_zip_s_requirements_are_read_at_upload() -> None:
    files = {"unlearning.py": b"def unlearning(net, r, f, v):\n    pass\n", "requirements.txt": b"fairlearn\n"}
    package = load_package(make_zip(files), "mine.zip", sources_only=True)
    assert package.entry_point.as_data()["notes"] == list(unmet_requirements("fairlearn"))


def test_requirements_are_compared_with_the_set_that_the_competition_names() -> None:
    asked = f"numpy=={OLDER_SETS['2023']['numpy']}"
    assert unmet_requirements(asked, libraries="2023") == ()
    assert unmet_requirements(asked)
    package = load_package(
        notebook("import peft, torch, cv2, wandb", "def unlearning(a, b, c, d): pass"), "n.ipynb", libraries="2023"
    )
    assert package.entry_point.notes == (
        "peft is imported, which is no listed library, and a run has no network to install it",
    )


@pytest.mark.parametrize("libraries", ["", "2023"])
def test_usual_libraries_are_in_every_set(libraries: str) -> None:
    usual = "einops torchmetrics cv2 albumentations accelerate lightning omegaconf ipywidgets wandb timm seaborn"
    cell = f"import {', '.join(usual.split())}\ndef unlearning(a, b, c, d): pass"
    assert load_package(notebook(cell), "n.ipynb", libraries=libraries).entry_point.notes == ()
