"""A benchmark of four small perceptrons, as a client sends it."""

from pathlib import Path
from typing import Any

import pytest

from lethe.benchmark import progress
from lethe.benchmark.plan import read_plan
from tests.lethe.conftest import BENCHMARK, COMPETITION

MINE = "def unlearning(net, retain_loader, forget_loader, val_loader):\n    return net\n"


class Recorder:
    """Takes what a client would send."""

    body: dict[str, Any]

    def put(self, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.body = body
        return {}


@pytest.fixture
def body(tmp_path: Path):
    """Return a function that makes the request of a benchmark; its file's text may be changed."""
    return lambda change=lambda text: text, **options: request_body(tmp_path, change, **options)


def request_body(folder: Path, change=lambda text: text, **options: Any) -> dict[str, Any]:
    (folder / "tiny_competition.toml").write_text(COMPETITION)
    (folder / "broken.py").write_text(MINE)
    (folder / "benchmark.toml").write_text(change(BENCHMARK))
    recorder = Recorder()
    progress.put_benchmark(recorder, read_plan(folder / "benchmark.toml"), **options)  # type: ignore[arg-type]
    return recorder.body
