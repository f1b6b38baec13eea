"""The code of a kit runs without this project, and its README is true."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.competition.run_limits import RetrainingCost
from lethe.competition.task import Kind
from server.starter_kit import kit_key
from server.storage import Storage
from tests.lethe.conftest import competition
from tests.support.forked_children import run_code
from worker.preparation.starter_kit import build
from worker.preparation.starter_kit.build import kit_code, readme


@pytest.mark.parametrize("kind", ["image-classification", "causal-lm"])
def test_kit_code_imports_nothing_of_this_project(kind: Kind, tmp_path: Path) -> None:
    for name, content in kit_code(kind):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    lines = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
        "import kit.estimate",
        "from kit.builders import TASK_BUILDERS, build",
        "sizes = dict(width=8, layers=1, heads=2, hidden_width=8, context=8)",
        "build(dict(task='causal-lm', name='llama', vocabulary_size=9, options=sizes))" if kind == "causal-lm" else "",
        "assert 'lethe' not in sys.modules, sorted(name for name in sys.modules if name.startswith('lethe'))",
    )
    run_code("\n".join(lines))


@pytest.mark.parametrize(("kind", "pictured"), [("image-classification", ["digits"]), ("causal-lm", [])])
def test_only_images_have_pictures_beside_the_kit(kind, pictured, tmp_path, monkeypatch):
    drawn: list[str] = []
    monkeypatch.setattr(build, "build_kit", lambda *_, **__: b"kit")
    monkeypatch.setattr(build, "store_pictures", lambda _storage, _folder, slug: drawn.append(slug))
    competition: Any = SimpleNamespace(slug="digits", task=SimpleNamespace(kind=kind))
    storage = Storage(tmp_path.as_uri())
    build.store_kit(storage, tmp_path, competition, url="", retraining=RetrainingCost(1.0), retrain=lambda: None)  # type: ignore[arg-type,return-value]
    assert storage.read(kit_key("digits")) == b"kit"
    assert drawn == pictured


@pytest.mark.parametrize(
    ("setup", "original"), [("reuse-n-1", "the original model"), ("reuse-n-n", "an original model of its own")]
)
def test_it_says_which_model_a_run_starts_from(setup: str, original: str) -> None:
    text = readme(
        competition(scoring={"setup": setup}),
        {"run_wall_time_s": 5.0, "sample_models": 8, "libraries": {"torch": "2.14"}},
    )
    assert f"fresh process, with {original} and another seed." in text


def test_the_readme_lists_what_a_run_finds_installed() -> None:
    about = {"run_wall_time_s": 5.0, "sample_models": 8, "libraries": {"torch": "2.14", "tqdm": "4.70"}}
    assert "| library | version |\n|---|---|\n| torch | 2.14 |\n| tqdm | 4.70 |\n" in readme(competition(), about)


def test_readme_tells_the_size_limit_of_a_python_file() -> None:
    about = {"run_wall_time_s": 5.0, "sample_models": 8, "libraries": {"torch": "2.14"}}
    assert "| upload | 5 MiB, one Python file up to 2 MiB |" in readme(competition(limits={"upload_mib": 5}), about)
