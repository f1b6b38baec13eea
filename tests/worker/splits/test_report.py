import json

import numpy as np
import pytest

from tests.worker.splits.conftest import MakeCompetition
from worker.splits.cut import Cut
from worker.splits.datasets.image_dataset import ImageDataset
from worker.splits.duplicates import duplicates_between
from worker.splits.report import report_page, split_report


@pytest.fixture
def pictures() -> ImageDataset:
    """Forty random pictures; 30 is a copy of 0, and 31 is 1 with a little noise."""
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


def test_report_counts_classes_and_what_sets_share(
    pictures: ImageDataset, cut: Cut, make_competition: MakeCompetition
) -> None:
    report = split_report(pictures, make_competition(), cut, "public")
    assert json.loads(json.dumps(report)) == report
    assert report["images"] == {"retain": 20, "forget": 5, "validation": 5, "test": 10}
    assert report["classes"]["forget"] == {"cat": 3, "dog<": 2}
    pairs = {tuple(pair["sets"]): pair for pair in report["pairs"]}
    assert pairs["retain", "test"]["near_duplicates"] == 2
    assert pairs["forget", "validation"]["shared_persons"] == 1  # images 24 and 25
    assert pairs["retain", "forget"]["shared_persons"] == 0


def test_page_shows_the_counts_and_escapes_names(
    pictures: ImageDataset, cut: Cut, make_competition: MakeCompetition
) -> None:
    page = report_page(split_report(pictures, make_competition(), cut, "public"))
    assert "<td>retain / test</td>" in page
    assert "dog&lt;" in page
    assert "dog<" not in page
