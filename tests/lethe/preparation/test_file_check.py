"""What preparing finds before it trains: mistakes of the file, the split's report, the evaluation's batch."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.competition.file import Network
from lethe.competition.preparation_share import SplitReport
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import InvalidDataset, InvalidSplit
from lethe.data.files import write_json
from lethe.data.forget_sets import Cut
from lethe.data.stored_sets import StoredSet
from lethe.errors import AppError
from lethe.preparation import image_task
from lethe.preparation.file_check import check_preparation
from lethe.preparation.image_task import duplicates_between
from lethe.preparation.split_parts import report_page
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
SPATIAL = "import torch\ndef build(shape, n): return torch.nn.Conv2d(shape[0], n, 1)"


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
        ("network", {"name": "module", "options": {"source": "def build(shape, n): return undefined"}}, "NameError"),
        (
            "network",
            {"name": "module", "options": {"source": SPATIAL}},
            r"module must give \[images, 10\] logits, in training too; for two images it gives \[2, 10, 8, 8\]",
        ),
        ("splits", {"train_size": 100_000}, "splits.train_size is 100000"),
        ("splits", {"validation_fraction": 0.001}, "too few for the public sample"),
        ("splits", {"forget": {"by": "random", "fraction": 1e-4}}, "the forget set would be empty"),
        ("splits", {"forget": {"by": "class", "classes": [3]}}, "splits.forget.private_classes must name"),
        ("splits", {"forget": {"by": "ids", "ids": [999_999], "private_ids": [1]}}, "forget ids are not in"),
        ("splits", {"forget": {"by": "random", "class_skew": {"17": 2.0}}}, "class_skew names class '17'"),
    ],
)
@pytest.mark.usefixtures("trusted_network_source")
def test_wrong_file_is_named(make_competition, section, values, expected):
    competition = make_competition(**{section: {} if section == "network" else values})
    if section == "network":  # whose options are of another network
        network = Network.model_validate({"name": "mlp"} | values)
        competition = competition.model_copy(update={"network": network})
    with pytest.raises((InvalidDataset, InvalidSplit), match=expected):
        check_preparation(competition)


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


@pytest.fixture
def pictures() -> ImageDataset:
    """Forty random images; 30 is a copy of 0, and 31 is 1 with a little noise."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)
    images[30] = images[0]
    images[31] = np.clip(images[1].astype(int) + generator.integers(-4, 5, images[1].shape), 0, 255)
    labels = np.arange(40) % 2
    return ImageDataset(images, labels, np.arange(40) // 2, n_classes=2, class_names=("cat", "dog<"))


def test_exact_and_near_duplicates_are_found_and_named(pictures: ImageDataset) -> None:
    found = duplicates_between(pictures, np.arange(20), np.arange(25, 40))
    assert (found.exact, found.near) == (1, 2)
    assert [pair[:2] for pair in found.examples] == [(0, 30), (1, 31)]


def test_flat_pictures_are_no_near_duplicates() -> None:
    flat = ImageDataset(
        np.stack([np.full((1, 8, 8), value, np.uint8) for value in (3, 3, 9)]),
        np.zeros(3, np.int64),
        np.arange(3),
        n_classes=2,
    )
    found = duplicates_between(flat, np.array([0]), np.array([1, 2]))
    assert (found.exact, found.near) == (1, 0)


@pytest.fixture
def cut(pictures: ImageDataset) -> Cut:
    parts = np.split(np.arange(40), [20, 25, 30])
    return Cut(retain=parts[0], forget=parts[1], validation=parts[2], test=parts[3], labels=pictures.labels)


def test_report_counts_classes_and_what_sets_share(pictures, cut, make_competition):
    report = image_task.report(pictures, make_competition(), cut, Visibility.PUBLIC)
    assert SplitReport.model_validate_json(report.model_dump_json()) == report
    assert report.images == {"retain": 20, "forget": 5, "validation": 5, "test": 10}
    assert report.classes["forget"] == {"cat": 3, "dog<": 2}
    pairs = {pair.sets: pair for pair in report.pairs}
    assert pairs["retain", "test"].near_duplicates == 2
    assert pairs["forget", "validation"].shared_persons == 1  # images 24 and 25
    assert pairs["retain", "forget"].shared_persons == 0


def test_class_names_keep_the_order_of_labels(pictures, cut, make_competition, tmp_path):
    """The report's file is sorted by key: the order of labels is only in the list of names."""
    zoo = replace(pictures, class_names=("zebra", "ant"))
    report = image_task.report(zoo, make_competition(), cut, Visibility.PUBLIC)
    write_json(tmp_path / "report.json", report.model_dump(mode="json"))
    read = SplitReport.model_validate_json((tmp_path / "report.json").read_text())
    assert read.class_names == ["zebra", "ant"]


def test_page_shows_the_counts_and_escapes_names(pictures, cut, make_competition):
    page = report_page(image_task.report(pictures, make_competition(), cut, Visibility.PUBLIC))
    assert "<td>retain / test</td>" in page
    assert "dog&lt;" in page
    assert "dog<" not in page


NETWORK = {"name": "mlp", "options": {}, "input_shape": [1, 4, 4], "n_classes": 2}


def sets(n_images: int, side: int = 4) -> dict[str, StoredSet]:
    numbers = torch.arange(n_images)
    return {"retain": StoredSet(torch.zeros(n_images, 1, side, side, dtype=torch.uint8), numbers % 2, numbers, numbers)}


def choose(monkeypatch: pytest.MonkeyPatch, rates: dict[int, float | None], n_images: int = 10_000) -> int:
    """Choose on a device with these rates; None: out of memory."""

    def rate(*_: Any, batch_size: int, **__: Any) -> float:
        value = rates[batch_size]
        if value is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return value

    monkeypatch.setattr(image_task, "_images_per_second", rate)
    return image_task.batch_size(NETWORK, sets(n_images), device="cuda", precision="float32")


def test_the_fastest_batch_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: dict[int, float | None] = {64: 1, 128: 2, 256: 4, 512: 8, 1024: 9, 2048: 5, 4096: 5}
    assert choose(monkeypatch, rates) == 1024


def test_a_batch_hardly_faster_is_not_worth_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: dict[int, float | None] = {64: 1, 128: 2, 256: 2.05, 512: 2.06, 1024: 2.07, 2048: 2.08, 4096: 2.09}
    assert choose(monkeypatch, rates) == 128


def test_a_batch_that_does_not_fit_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, {64: 1, 128: 2, 256: 3, 512: None}) == 256


@pytest.mark.parametrize(("message", "is_lack"), [("CUBLAS_STATUS_ALLOC_FAILED", True), ("shapes differ", False)])
def test_a_library_that_finds_no_memory_ends_it_too(monkeypatch, message, is_lack):
    def rate(*_: Any, batch_size: int, **__: Any) -> float:
        if batch_size > 64:
            raise RuntimeError(message)
        return 1.0

    monkeypatch.setattr(image_task, "_images_per_second", rate)
    with nullcontext() if is_lack else pytest.raises(RuntimeError, match=message):
        assert image_task.batch_size(NETWORK, sets(1000), device="cuda", precision="float32") == 64


def test_no_batch_larger_than_the_set_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, {64: 1, 128: 2, 256: 3}, n_images=200) == 256


@pytest.mark.parametrize(("side", "expected"), [(8, 1024), (32, 256)])
def test_on_a_cpu_it_is_a_rule(side: int, expected: int) -> None:
    assert image_task.batch_size(NETWORK, sets(10, side), device="cpu", precision="float32") == expected
