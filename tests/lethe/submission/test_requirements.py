"""A zip's requirements.txt against what is installed."""

import io
import zipfile

import pytest

from lethe.submission.libraries import LIBRARIES, OLDER_SETS
from lethe.submission.package import load_package
from lethe.submission.requirements import unmet_requirements
from scripts import library_pages
from tests.support.notebook_file import notebook


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
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("unlearning.py", "def unlearning(net, r, f, v):\n    pass\n")
        archive.writestr("requirements.txt", "fairlearn\n")
    package = load_package(packed.getvalue(), "mine.zip", sources_only=True)
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
