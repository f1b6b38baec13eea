"""A starter kit: its code runs without this project, its README is true, its pictures are the sample's."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lethe.competition.run_limits import RetrainingCost
from lethe.competition.task import Kind
from lethe.data.stored_sets import StoredSet
from server.starter_kit import kit_key, picture_key
from server.storage import Storage
from tests.lethe.conftest import competition
from tests.support.forked_children import run_code
from worker.preparation.starter_kit import build
from worker.preparation.starter_kit.build import GAP_PX, kit_code, make_sheet, readme, store_pictures


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


def opened(sheet: bytes) -> Image.Image:
    return Image.open(io.BytesIO(sheet))


def test_a_sheet_shows_sixteen_of_many_images_enlarged() -> None:
    images = np.arange(100, dtype=np.uint8).reshape(100, 1, 1, 1) * np.ones((1, 1, 8, 8), dtype=np.uint8)
    sheet = opened(make_sheet(images))
    assert sheet.size == (8 * 64 + 7 * GAP_PX, 2 * 64 + GAP_PX)
    assert sheet.getpixel((0, 0)) == (0, 0, 0, 255)
    assert sheet.getpixel((sheet.width - 1, sheet.height - 1)) == (99, 99, 99, 255)
    assert sheet.getpixel((64, 0))[3] == 0  # between two pictures


@pytest.mark.parametrize(
    ("channels", "colour"), [(3, (10, 20, 30, 255)), (1, (10, 10, 10, 255)), (2, (10, 10, 10, 255))]
)
def test_any_number_of_channels_is_drawn(channels: int, colour: tuple[int, ...]) -> None:
    image = np.stack([np.full((40, 30), 10 * (channel + 1), dtype=np.uint8) for channel in range(channels)])
    sheet = opened(make_sheet(image[None]))
    assert sheet.size == (60, 80)
    assert sheet.getpixel((5, 5)) == colour


def test_both_sets_are_stored_where_the_server_looks(tmp_path: Path) -> None:
    for name, value in (("forget", 7), ("retain", 200)):
        images = torch.full((3, 1, 4, 4), value, dtype=torch.uint8)
        numbers = torch.arange(3)
        StoredSet(images, numbers, numbers, numbers).write(tmp_path / f"{name}.safetensors")
    storage = Storage((tmp_path / "storage").as_uri())
    store_pictures(storage, tmp_path, "digits")
    assert opened(storage.read(picture_key("digits", "forget"))).getpixel((0, 0)) == (7, 7, 7, 255)
    assert opened(storage.read(picture_key("digits", "retain"))).getpixel((0, 0)) == (200, 200, 200, 255)


def test_rows_of_a_table_are_not_drawn(tmp_path: Path) -> None:
    numbers = torch.arange(3)
    for name in ("forget", "retain"):
        StoredSet(torch.rand(3, 5, 1, 1), numbers, numbers, numbers).write(tmp_path / f"{name}.safetensors")
    storage = Storage((tmp_path / "storage").as_uri())
    store_pictures(storage, tmp_path, "patients")
    assert not storage.exists(picture_key("patients", "forget"))
