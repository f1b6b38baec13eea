"""What is found in a folder or an archive: kind of data, classes, persons, sizes; and what is said where nothing is."""

import io
import json
from collections.abc import Mapping
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
from lethe.data.errors import InvalidDataset
from lethe.errors import InvalidCompetitionFile
from lethe.preparation.file_check import check_preparation
from lethe.preparation.task_kinds import forward_operations
from lethe.proposal.detect import Detected, detect
from lethe.proposal.propose import propose, slug_of
from lethe.proposal.source import ImageHeader, open_archive, read_header
from tests.support.images import png
from tests.support.instance import make_zip


class Files:
    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files, self.names = files, tuple(sorted(files))

    def read(self, name: str, *, at_most: int) -> bytes:
        return self.files[name][:at_most]


def pictures(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, png())


def test_folders_are_classes_and_persons() -> None:
    names = [f"{kind}/{who}/{n}.png" for kind in ("cat", "dog") for who in ("ann", "bob") for n in range(3)]
    around = {f"pets/{name}": content for name, content in pictures(*names).items()}
    assert detect(open_archive(io.BytesIO(make_zip(around)))).options["folders"] == ["label", "person"]
    found = detect(Files(pictures(*names)))
    assert found.dataset == "folder"
    assert found.options == {"folders": ["label", "person"], "size": 24, "channels": 3}
    assert found.class_counts == {"cat": 6, "dog": 6}
    assert found.images is not None
    assert found.images.knows_persons


def test_training_and_test_folders_are_no_classes() -> None:
    names = [f"{part}/{kind}/{n}.png" for part in ("train", "test") for kind in "ab" for n in range(4)]
    found = detect(Files(pictures(*names)))
    assert found.options["folders"] == ["test", "label"]
    assert found.images is not None
    assert found.images.is_test is not None
    assert found.images.is_test.sum() == 8
    assert any("no persons were found" in note for note in found.notes)


def test_columns_of_a_table_are_recognised() -> None:
    rows = "".join(f"p/{n}.png,{'x' if n % 2 else 'y'},w{n % 3},train\n" for n in range(8))
    files = pictures(*(f"p/{n}.png" for n in range(8))) | {"all.csv": f"file,Class,writer,split\n{rows}".encode()}
    found = detect(Files(files))
    assert found.options == {
        "table": "all.csv", "path_column": "file", "label_column": "Class", "person_column": "writer",
        "test_column": "split", "size": 24, "channels": 3,
    }  # fmt: skip


def test_questions_are_counted_with_their_groups() -> None:
    lines = "".join(f'{{"question": "q{n}", "answer": "a{n}", "group": {n % 3}}}\n' for n in range(9))
    found = detect(Files({"q.jsonl": lines.encode()}))
    assert (found.dataset, found.questions, found.groups) == ("questions", 9, 3)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": b""}, "no images, no questions and no table were found among 1 files"),
        (pictures("a.png", "b.png"), "all images lie in one folder"),
        (pictures("c/a.png", "c/b.png"), "all images lie in one folder"),
        (pictures("c/a.png", "d/b.png", "d/c.png", "d/e/f.png"), "but d/e/f.png does not"),
        (pictures(*(f"{n}/a.png" for n in range(4))), "most of one image"),
        ({"q.jsonl": b'{"question": "q"}'}, "line 1 has no question and answer"),
        (pictures("a.png") | {"t.csv": b"path\na.png\n"}, "t.csv has no column of classes: it has path"),
    ],
)
def test_what_is_not_understood_is_named(files: Mapping[str, bytes], message: str) -> None:
    with pytest.raises(InvalidDataset, match=message):
        detect(Files(files))


def test_headers_tell_size_and_colour() -> None:
    assert read_header(png(9, colour=0)) == ImageHeader(9, 9, 1, "image/png")
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x07\x00\x05\x03"
    assert read_header(jpeg) == ImageHeader(5, 7, 3, "image/jpeg")
    assert read_header(b"GIF89a\x03\x00\x02\x00") == ImageHeader(3, 2, 3, "image/gif")
    for broken in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"P6 x", b"text"):
        assert read_header(broken) is None


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
