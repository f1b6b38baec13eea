"""What a bundle of somebody else may name on the machine that runs its entries again."""

import json
from pathlib import Path

import pytest

from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput
from tests.lethe.conftest import competition
from worker.evaluation.bundle_replay import read_published

ENTRY = {"id": "e1", "code": "code.py", "filename": "code.py", "mode": "function"}


@pytest.mark.parametrize(("name", "path"), [("root", "/home/eve"), ("root", "~"), ("root", "a/../.."), ("cache", "/x")])
def test_data_outside_the_bundle_is_not_read(tmp_path: Path, name: str, path: str) -> None:
    file = competition().model_dump(mode="json")
    file["dataset"] = {"name": "folder", "options": {"root": "faces", name: path}}
    score = {"receipt": "receipt.json"}
    content = {
        "entries.json": [{**ENTRY, "parts": [{"task": "", "scores": {"public": score}}]}],
        "receipt.json": {},
        "competition.json": file,
    }
    for each, value in content.items():
        (tmp_path / each).write_text(json.dumps(value))
    (tmp_path / "code.py").write_text("def unlearning(net, retain_loader, forget_loader, val_loader):\n    pass\n")
    with pytest.raises(InvalidInput, match=f"dataset.options.{name} must be a path inside the bundle"):
        read_published(tmp_path, "e1", task="", visibility=Visibility.PUBLIC)
