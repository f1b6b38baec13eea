from dataclasses import replace

import numpy as np
import pytest

from lethe.competition.preparation_share import SplitReport
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.files import write_json
from lethe.data.forget_sets import Cut
from lethe.preparation.split_report import duplicates_between, make_split_report, report_page


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
    report = make_split_report(pictures, make_competition(), cut, Visibility.PUBLIC)
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
    report = make_split_report(zoo, make_competition(), cut, Visibility.PUBLIC)
    write_json(tmp_path / "report.json", report.model_dump(mode="json"))
    read = SplitReport.model_validate_json((tmp_path / "report.json").read_text())
    assert read.class_names == ["zebra", "ant"]


def test_page_shows_the_counts_and_escapes_names(pictures, cut, make_competition):
    page = report_page(make_split_report(pictures, make_competition(), cut, Visibility.PUBLIC))
    assert "<td>retain / test</td>" in page
    assert "dog&lt;" in page
    assert "dog<" not in page
