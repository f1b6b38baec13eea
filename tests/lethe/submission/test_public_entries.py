"""Entries in the manner of public ones are read in function mode and run: nothing of what they set is lost."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save_file

from lethe.evaluation.child_runs import ChildRuns
from lethe.evaluation.local_check import stage_files
from lethe.submission.package import Package, load_package
from tests.lethe.submission.public_entries import PUBLIC_ENTRIES, PublicEntry
from tests.lethe.submission.public_entries_second import SECOND_ENTRIES

ENTRIES = (*PUBLIC_ENTRIES, *SECOND_ENTRIES)


def make_package(entry: PublicEntry) -> Package:
    content = entry.content
    if isinstance(content, str):
        return load_package(content.encode(), "entry.py")
    if isinstance(content, list):
        cells = [{"cell_type": "code", "source": text} for text in content]
        return load_package(json.dumps({"cells": cells}).encode(), "entry.ipynb")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return load_package(packed.getvalue(), "entry.zip")


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildRuns]:
    folder = tmp_path_factory.mktemp("data")
    for name, size in {"retain": 6, "forget": 3, "validation": 4}.items():
        save_file(
            {
                "images": torch.zeros(size, 1, 2, 3, dtype=torch.uint8),
                **{part: torch.arange(size) % 3 for part in ("labels", "ids", "persons")},
            },
            folder / f"{name}.safetensors",
        )
    save_file({"1.weight": torch.ones(3, 6), "1.bias": torch.zeros(3)}, folder / "original_model.safetensors")
    network = {"name": "mlp", "options": {"hidden": []}, "input_shape": [1, 2, 3], "n_classes": 3}
    (folder / "network.json").write_text(json.dumps(network | {"input_scale": 1.0, "input_shift": 0.0}))
    any_entry = make_package(PUBLIC_ENTRIES[0]).entry_point
    with ChildRuns(folder, folder, any_entry, wall_time_s=60.0) as started:
        yield started


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_public_entry_writes_what_its_whole_top_level_says(
    entry: PublicEntry, child: ChildRuns, tmp_path: Path
) -> None:
    package = make_package(entry)
    assert (package.entry_point.mode, package.entry_point.style) == ("function", entry.style)
    child._code_dir, child._entry = stage_files(package, tmp_path), package.entry_point  # one process for all of them
    result = child.run(ENTRIES.index(entry), seed=1)
    assert result.weights is not None, (result.fault, child.log()[-3000:], package.entry_point.left_out)
    assert load(result.weights)["1.bias"].tolist() == pytest.approx([entry.value] * 3)


def test_what_an_entry_writes_for_a_moment_goes_with_it(child: ChildRuns, tmp_path: Path) -> None:
    """A folder that all share has one file of a name, which belongs to whoever came first."""
    entry = next(entry for entry in ENTRIES if "best.pt" in str(entry.content))
    package = make_package(entry)
    child._code_dir, child._entry = stage_files(package, tmp_path), package.entry_point
    assert child.run(len(ENTRIES), seed=1).weights is not None
    assert [path.parent.name for path in Path(child._folder.name).rglob("best.pt")] == ["scratch"]
