"""What `lethe competition validate` finds: all that preparing would stumble over before it trains."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidDataset, InvalidSplit
from lethe.errors import AppError
from lethe.preparation.file_check import check_preparation
from tests.lethe.conftest import MakeCompetition

FILE = """\
slug = "mine"
title = "Mine"
opens_at = 2026-01-01T00:00:00Z
closes_at = 2190-02-01T00:00:00Z
n_models = 12
[dataset]
name = "numpy"
options = { root = "data" }
[network]
name = "mlp"
[training]
epochs = 2
learning_rate = 0.1
min_train_accuracy = 0.3
[splits]
train_size = 80
[splits.forget]
by = "random"
fraction = 0.1
"""
RUNNER = CliRunner()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A competition file whose pictures lie beside it."""
    folder = tmp_path / "organiser"
    (folder / "data").mkdir(parents=True)
    draw = np.random.default_rng(0)
    labels = np.arange(120) % 2
    images = draw.integers(0, 80, (120, 6, 6)) + 100 * labels[:, None, None]
    np.save(folder / "data" / "images.npy", images.astype(np.uint8))
    np.save(folder / "data" / "labels.npy", labels)
    (folder / "mine.toml").write_text(FILE)
    return folder / "mine.toml"


def test_sizes_of_both_splits_are_returned(make_competition: MakeCompetition) -> None:
    sizes = check_preparation(make_competition())
    assert set(sizes) == set(Visibility)
    assert {name: n for name, n in sizes[Visibility.PUBLIC].items() if name != "test"} == {
        "retain": 180,
        "forget": 20,
        "validation": 90,
    }


@pytest.mark.parametrize(
    ("section", "values", "expected"),
    [
        ("dataset", {"name": "digitz"}, "dataset.name 'digitz' is not known"),
        ("dataset", {"options": {"nois": 0.5}}, "dataset.options.nois"),
        ("dataset", {"name": "numpy", "options": {"root": "/no/such/folder"}}, "/no/such/folder"),
        ("network", {"name": "resnet1", "options": {}}, "unknown network 'resnet1'"),
        ("network", {"options": {"hiden": [3]}}, "has no option 'hiden'"),
        ("network", {"name": "alexnet", "options": {}}, r"\[network\]"),
        ("splits", {"train_size": 100_000}, "splits.train_size is 100000"),
        ("splits", {"validation_fraction": 0.001}, "too few for the public sample"),
        ("splits", {"forget": {"by": "random", "fraction": 1e-4}}, "the forget set would be empty"),
        ("splits", {"forget": {"by": "class", "classes": [3]}}, "splits.forget.private_classes must name"),
        ("splits", {"forget": {"by": "ids", "ids": [999_999], "private_ids": [1]}}, "forget ids are not in"),
        ("splits", {"forget": {"by": "random", "class_skew": {"17": 2.0}}}, "class_skew names class '17'"),
    ],
)
def test_wrong_file_is_named(make_competition, section, values, expected):
    with pytest.raises((InvalidDataset, InvalidSplit), match=expected):
        check_preparation(make_competition(**{section: values}))


def test_everything_wrong_is_told_at_once(make_competition: MakeCompetition) -> None:
    wrong = make_competition(network={"name": "nothing"}, splits={"forget": {"by": "random", "fraction": 1e-4}})
    with pytest.raises(InvalidSplit) as told:
        check_preparation(wrong)
    for part in ("unknown network", "would be empty"):
        assert told.value.detail.count(part) == 1


def test_validate_finds_data_beside_the_file(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = RUNNER.invoke(build_app(), ["competition", "validate", str(file), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["set_sizes"]["private"]["forget"] == 8
    shutil.rmtree(file.parent / "data")
    missing = RUNNER.invoke(build_app(), ["competition", "validate", str(file)])
    assert isinstance(missing.exception, AppError)
    assert str(file.parent / "data") in missing.exception.detail
    alone = RUNNER.invoke(build_app(), ["competition", "validate", str(file), "--file-only"])
    assert "data and network were not looked at" in " ".join(alone.stdout.split())


def test_prepared_split_is_scored_without_a_server(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    made = RUNNER.invoke(build_app(), ["prepare", str(file), "--out", "split", "--json"])
    assert made.exit_code == 0, (made.output, made.exception)
    assert json.loads(made.stdout)["set_sizes"]["forget"] == 8
    again = RUNNER.invoke(build_app(), ["prepare", str(file), "--out", "split", "--json"])
    assert json.loads(again.stdout) == json.loads(made.stdout), "nothing was made again"
    method = ["methods", "run", "finetune", "--split", "split", "-n", "12", "--keep", "models"]
    assert RUNNER.invoke(build_app(), method).exit_code == 0
    arrays = ["confidences", "models", "--split", "split", "--out", "U.npz"]
    assert RUNNER.invoke(build_app(), arrays).exit_code == 0
    scored = RUNNER.invoke(build_app(), ["score", "--unlearned", "U.npz", "--split", "split", "--json"])
    assert scored.exit_code == 0, (scored.output, scored.exception)
    found = json.loads(scored.stdout)
    assert found["share_of_oracle"] == pytest.approx(found["final_score"] / found["oracle_score"])


@pytest.mark.parametrize("command", ["validate", "create", "update"])
def test_network_that_no_worker_builds_is_refused_before_anything_is_sent(file: Path, command: str) -> None:
    file.write_text(file.read_text().replace("[network]", "[network]\noptions = { hidden = [16_000_000] }"))
    done = RUNNER.invoke(build_app(), ["competition", command, str(file)])
    assert isinstance(done.exception, InvalidSplit)
    assert "allowed here are 268,435,456 parameters" in done.exception.detail


def test_time_that_is_too_short_for_all_runs_is_said(file: Path) -> None:
    file.write_text(file.read_text() + "\n[limits]\nwall_time_s = 2\n")
    done = RUNNER.invoke(build_app(), ["competition", "validate", str(file), "--json"])
    assert done.exit_code == 0, done.exception
    assert any("runs together have 2 s" in warning for warning in json.loads(done.stdout)["warnings"])


def test_equal_examples_of_two_classes_are_said(file: Path) -> None:
    folder = file.parent / "data"
    images = np.load(folder / "images.npy")
    labels = np.load(folder / "labels.npy")
    other = int(np.flatnonzero(labels != labels[0])[0])
    images[other] = images[0]
    np.save(folder / "images.npy", images)
    done = RUNNER.invoke(build_app(), ["competition", "validate", str(file), "--json"])
    assert done.exit_code == 0, done.exception
    assert any("1 images are equal to one of another class" in w for w in json.loads(done.stdout)["warnings"])
