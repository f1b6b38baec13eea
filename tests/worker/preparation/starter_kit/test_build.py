"""The code of a kit runs without this project."""

import subprocess
import sys
from pathlib import Path

from worker.preparation.starter_kit.build import kit_code


def test_kit_code_imports_nothing_of_this_project(tmp_path: Path) -> None:
    for name, content in kit_code():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    lines = (
        "import sys",
        "import kit.estimate",
        "assert 'lethe' not in sys.modules, sorted(name for name in sys.modules if name.startswith('lethe'))",
    )
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=tmp_path,
        env={"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
