"""A small competition, prepared once for all tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lethe.competition.file import CompetitionFile
from lethe.preparation.prepare import prepare_split
from tests.support import forked_children

MakeCompetition = Callable[..., CompetitionFile]


def competition(**changes: Any) -> CompetitionFile:
    """Return a small digits competition with sections replaced or (given a dict) changed."""
    sections: dict[str, Any] = {
        "slug": "small",
        "title": "Small",
        "opens_at": "2026-01-01T00:00:00Z",
        "closes_at": "2026-02-01T00:00:00Z",
        "n_models": 5,
        "dataset": {"name": "digits", "options": {"noise": 0.5}},
        "network": {"name": "mlp", "options": {"hidden": [12]}},
        "training": {"epochs": 4, "learning_rate": 0.1},
        "splits": {
            "seed": 0,
            "train_size": 200,
            "validation_fraction": 0.05,
            "test_fraction": 0.1,
            "forget": {"by": "random", "fraction": 0.1},
        },
    }
    for name, value in changes.items():
        sections[name] = {**sections.get(name, {}), **value} if isinstance(value, dict) else value
    return CompetitionFile.model_validate(sections)


@pytest.fixture
def make_competition() -> MakeCompetition:
    return competition


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared public split: read it, do not change it."""
    out = tmp_path_factory.mktemp("splits") / "public"
    prepare_split(competition(), "public", out)
    return out


@pytest.fixture
def quick_children() -> Iterator[None]:
    """Child processes of `ChildRuns` and `run_on_split` that are forked, not started."""
    with forked_children.forked_children():
        yield
