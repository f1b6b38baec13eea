import numpy as np
import pytest

from lethe.competition.file import Dataset
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.datasets.registry import open_dataset


def faces(**options: object) -> ImageDataset:
    return open_dataset(Dataset(name="faces", options={"persons": 40, "images_per_person": 6, **options}))


@pytest.fixture(scope="module")
def drawn() -> ImageDataset:
    return faces()


def test_persons_have_many_pictures_and_one_age_group(drawn: ImageDataset) -> None:
    counts = np.bincount(drawn.persons)
    assert len(counts) == 40
    assert counts.min() >= 3
    assert counts.max() <= 9
    assert all(len(set(drawn.labels[drawn.persons == person])) == 1 for person in range(40))


def test_all_age_groups_occur_and_the_young_are_many() -> None:
    groups = np.bincount(faces(persons=200, images_per_person=1).labels, minlength=10)
    assert groups.min() >= 1
    assert groups[0] > 3 * groups[5:].mean()


def test_same_seed_gives_same_images_for_any_number_of_persons(drawn: ImageDataset) -> None:
    fewer = faces(persons=12)
    assert np.array_equal(fewer.images, drawn.images[: len(fewer)])
    assert not np.array_equal(faces(persons=12, seed=1).images[:3], fewer.images[:3])


def test_images_of_one_person_resemble_each_other_most(drawn: ImageDataset) -> None:
    means = np.array([drawn.images[drawn.persons == p][:, :, 10:22, 10:22].mean(axis=(0, 2, 3)) for p in range(40)])
    own = drawn.images[:, :, 10:22, 10:22].mean(axis=(2, 3))
    to_own = np.linalg.norm(own - means[drawn.persons], axis=1).mean()
    to_others = np.linalg.norm(own[:, None] - means, axis=2).mean()
    assert 2 < to_own < 0.6 * to_others


def test_wrinkles_and_hair_let_the_old_be_told_from_the_young() -> None:
    dataset = faces(persons=120, images_per_person=4, noise=0.0, imbalance=1.0)
    inner = dataset.images[:, :, 8:26, 8:24].astype(float)
    detail = np.abs(np.diff(inner, axis=3)).mean(axis=(1, 2, 3)) / inner.mean(axis=(1, 2, 3))
    assert detail[dataset.labels >= 8].mean() > 1.1 * detail[(dataset.labels >= 2) & (dataset.labels <= 3)].mean()
