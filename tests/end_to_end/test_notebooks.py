"""Kaggle's notebooks, sent over HTTP as they are, against ResNet-18 on 32x32 pictures: each ends in a score.

Two of the examples come this whole way; `tests/sandbox/notebook/test_starting_kit.py` runs the others.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import examples
from lethe.client.api import ApiError, JsonObject, LetheClient
from tests.end_to_end.conftest import Instance, open_competition, wait_for_end

pytestmark = pytest.mark.slow

NOTEBOOKS = Path(next(iter(examples.__path__))) / "notebooks"
RUNS = 2  # the second must find nothing of the first
TOML = """
slug = "faces"
title = "Small faces"
opens_at = {opens}
closes_at = {closes}
n_models = {n}
shard_runs = 1
[scoring]
attacks = "reference"
[dataset]
name = "faces"
options = {{ persons = 12, images_per_person = 8 }}
[network]
name = "resnet18"
[training]
epochs = 1
learning_rate = 0.05
min_train_accuracy = 0.001
[splits.forget]
by = "random"
fraction = 0.1
[limits]
wall_time_s = 900
run_wall_time_floor_s = 120
memory_mib = 2048
submissions_per_day = 100
[splits]
seed = 18446744073709551616
validation_fraction = 0.2
[submissions]
modes = ["function", "notebook"]
cuda = "map-to-cpu"
"""


@pytest.fixture(scope="module")
def instance(empty_instance: Instance) -> Instance:
    moment = datetime.now(UTC).replace(microsecond=0)
    toml = TOML.format(
        opens=(moment - timedelta(hours=1)).isoformat(), closes=(moment + timedelta(days=1)).isoformat(), n=RUNS
    )
    open_competition(empty_instance, toml)
    return empty_instance


@pytest.fixture(scope="module")
def client(instance: Instance) -> LetheClient:
    return instance.participant("kaggler")


def scored(client: LetheClient, path: Path) -> JsonObject:
    ended = wait_for_end(client, client.submit("faces", path))
    assert ended["stage"] == "scored", (ended["failure"], client.log(ended["id"]))
    return ended


def written(folder: Path, *cells: str) -> Path:
    path = folder / "mine.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}))
    return path


@pytest.mark.parametrize("name", ["half_precision", "left_over_files"])
def test_a_notebook_is_run_unchanged_to_a_score(client: LetheClient, name: str) -> None:
    ended = scored(client, NOTEBOOKS / f"{name}.ipynb")
    assert (ended["mode"], ended["program"]) == ("function", "saves")
    assert ended["progress"]["runs_done"] == RUNS
    assert ended["score"]["final_score"] >= 0
    if name == "half_precision":
        assert "cast from float16 to float32" in client.log(ended["id"])


def test_a_failing_notebook_names_its_cell(client: LetheClient, tmp_path: Path) -> None:
    path = written(tmp_path, "import torch", "x = 1\nraise OSError('no')\ntorch.save({}, 'x.pth')")
    failure = wait_for_end(client, client.submit("faces", path))["failure"]
    assert (failure["error_class"], failure["file"], failure["line"]) == ("exception", "cell-02.py", 2)


def test_a_notebook_that_is_no_python_is_refused_at_the_door(client: LetheClient, tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="cell 1"):
        client.submit("faces", written(tmp_path, "x = = 1"))


DEPENDS = """
import torch
if torch.device("cuda" if torch.cuda.is_available() else "cpu").type != "cuda":
    raise RuntimeError("Make sure you have added an accelerator")
for i in range(2):
    state = torch.load('/kaggle/input/neurips-2023-machine-unlearning/original_model.pth', map_location="cuda")
    state['fc.bias'] += i
    torch.save(state, f'/kaggle/tmp/unlearned_checkpoint_{i}.pth')
"""


def test_code_for_cuda_runs_and_models_that_differ_by_number_are_warned_of(client: LetheClient, tmp_path: Path) -> None:
    log = client.log(scored(client, written(tmp_path, DEPENDS))["id"])
    assert "lethe: warning: Later models of this notebook do not come out like its first one" in log
    assert "Each run runs this notebook until its first model" in log


# Last: sandboxes of the other mode are started again.
def test_a_whole_notebook_runs_once_and_the_board_says_so(client: LetheClient, tmp_path: Path) -> None:
    path = written(tmp_path, "# lethe: mode = notebook", DEPENDS, "!zip -q submission.zip /kaggle/tmp/*.pth")
    assert scored(client, path)["mode"] == "notebook"
    rows = client.leaderboard("faces")["rows"]
    assert {row["mode"] for row in rows if row["kind"] == "team"} <= {"function", "notebook"}
