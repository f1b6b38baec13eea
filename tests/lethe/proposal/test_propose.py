"""A proposed competition: a file that is valid for its data, and a cut that is the one preparing makes."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.competition.estimates import mlp_operations, small_cnn_operations
from lethe.competition.file import read_competition_file
from lethe.competition.visibility import Visibility
from lethe.data.datasets.registry import datasets_beside
from lethe.errors import InvalidCompetitionFile
from lethe.preparation.file_check import check_preparation
from lethe.preparation.task_kinds import forward_operations
from lethe.proposal.detect import Detected
from lethe.proposal.propose import propose, slug_of

RUNNER = CliRunner()


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A folder of 240 images of 2 classes and 40 persons."""
    for number in range(240):
        path = tmp_path / "My Pets" / ("cat" if number % 2 else "dog") / f"{number % 40:02}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10, 10), (number, 0, 0)).save(path)
    return tmp_path / "My Pets"


def test_a_folder_becomes_a_file_that_preparing_takes(pets: Path) -> None:
    done = RUNNER.invoke(build_app(), ["competition", "new", str(pets), "--models", "8", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    file = read_competition_file(pets.parent / "my-pets.toml")
    assert (file.n_models, file.splits.forget.by, file.dataset.options["root"]) == (8, "person", "My Pets")
    with datasets_beside(pets.parent / "my-pets.toml"):
        sizes = check_preparation(file)[Visibility.PUBLIC]
    assert {name: sizes[name] for name in ("validation", "test")} == {"validation": 48, "test": 48}
    assert sum(sizes.values()) == sum(said["set_sizes"].values()) == 240
    assert min(sizes["forget"], said["set_sizes"]["forget"]) >= 10  # another seed is drawn each time
    assert said["preparation_s"] == pytest.approx(2 * 17 * said["retraining_s"])
    again = RUNNER.invoke(build_app(), ["competition", "new", str(pets)])
    assert "is there already" in str(again.exception)


def test_a_table_becomes_a_file_that_preparing_takes(tmp_path: Path) -> None:
    rows = "".join(f"case-{n},{n % 7},{n * 0.1:.1f},{'xy'[n % 2]},w{n // 4}\n" for n in range(200))
    (tmp_path / "blood").mkdir()
    (tmp_path / "blood" / "values.csv").write_text(f"case,age,sugar,group,patient\n{rows}")
    command = ["competition", "new", str(tmp_path / "blood"), "--label-column", "group", "--models", "8", "--json"]
    done = RUNNER.invoke(build_app(), command)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    file = read_competition_file(tmp_path / "blood.toml")
    assert (file.dataset.name, file.network.name, file.splits.forget.by) == ("table", "mlp", "person")
    chosen = {"root": "blood", "file": "values.csv", "label": "group", "person": "patient", "leave_out": ["case"]}
    assert file.dataset.options == chosen
    assert said["classes"] == {"x": 100, "y": 100}
    with datasets_beside(tmp_path / "blood.toml"):
        sizes = check_preparation(file)[Visibility.PUBLIC]
    assert sum(sizes.values()) == sum(said["set_sizes"].values()) == 200


def test_what_the_organiser_says_takes_the_place_of_the_proposal() -> None:
    questions = Detected("questions", {"files": ["q.jsonl"], "vocabulary": 2048}, questions=200, groups=10)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    given = {"n_models": 4, "title": 'A "title"\n', "training.epochs": 3}
    file = propose(questions, root="q", slug="q", title="", at=at, given=given).file
    assert (file.n_models, file.title, file.training.epochs, file.task.kind) == (4, 'A "title"\n', 3, "causal-lm")
    assert file.opens_at > at
    with pytest.raises(InvalidCompetitionFile, match="epochs"):
        propose(questions, root="q", slug="q", title="", at=at, given={"training.epochs": 0})


@pytest.mark.parametrize(("name", "slug"), [("My Pets!", "my-pets"), ("é", "my-competition"), ("a" * 70, "a" * 64)])
def test_a_folders_name_becomes_an_address(name: str, slug: str) -> None:
    assert slug_of(name) == slug


@pytest.mark.parametrize("shape", [(3, 24, 24), (1, 28, 28), (3, 64, 64)])
def test_operations_are_those_of_the_networks(shape: tuple[int, int, int]) -> None:
    description = {"input_shape": list(shape), "n_classes": 5}
    cnn = forward_operations({**description, "name": "small_cnn", "options": {"widths": [16, 32, 64]}})
    assert small_cnn_operations(shape, 5, (16, 32, 64)) == pytest.approx(cnn, rel=0.02)
    mlp = forward_operations({**description, "name": "mlp", "options": {"hidden": [64]}})
    assert mlp_operations(shape, 5, (64,)) == pytest.approx(mlp, rel=0.02)
