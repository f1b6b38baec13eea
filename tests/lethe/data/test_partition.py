import re

import numpy as np
import pytest

from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import InvalidSplit
from lethe.data.forget_sets import cut_dataset
from tests.lethe.conftest import MakeCompetition
from tests.support.toy_images import toy

SPLITS = {"train_size": None, "validation_fraction": 0.1, "test_fraction": 0.1}


def test_default_parts_are_80_10_10_without_overlap(make_competition: MakeCompetition) -> None:
    cut = cut_dataset(toy(), make_competition(splits=SPLITS), "public")
    assert [len(part) for part in (cut.train, cut.validation, cut.test)] == [80, 10, 10]
    everything = np.concatenate([cut.retain, cut.forget, cut.validation, cut.test])
    assert sorted(everything) == list(range(100))


def test_public_and_private_share_parts_but_no_forget_image(make_competition: MakeCompetition) -> None:
    competition = make_competition(splits=SPLITS)
    public, private = (cut_dataset(toy(), competition, visibility) for visibility in ("public", "private"))
    assert np.array_equal(public.train, private.train)
    assert np.array_equal(public.test, private.test)
    assert len(private.forget) == len(public.forget) == 8
    assert not set(public.forget) & set(private.forget)


@pytest.mark.parametrize("seed", range(5))
def test_forgetting_by_person_leaves_no_person_on_both_sides(make_competition: MakeCompetition, seed: int) -> None:
    competition = make_competition(splits={**SPLITS, "seed": seed, "forget": {"by": "person", "fraction": 0.2}})
    dataset = toy()
    public, private = (cut_dataset(dataset, competition, visibility) for visibility in ("public", "private"))
    for cut in (public, private):
        assert not set(dataset.persons[cut.forget]) & set(dataset.persons[cut.retain])
        assert 13 <= len(cut.forget) <= 16
    assert not set(dataset.persons[public.forget]) & set(dataset.persons[private.forget])


def test_a_datasets_own_test_set_is_kept(make_competition: MakeCompetition) -> None:
    cut = cut_dataset(toy(is_test=True), make_competition(splits=SPLITS), "public")
    assert list(cut.test) == list(range(80, 100))
    assert len(cut.validation) == 8


def test_same_file_same_cut_and_another_seed_another(make_competition: MakeCompetition) -> None:
    first, again = (cut_dataset(toy(), make_competition(splits=SPLITS), "public") for _ in range(2))
    other = cut_dataset(toy(), make_competition(splits={**SPLITS, "seed": 1}), "public")
    assert np.array_equal(first.forget, again.forget)
    assert not np.array_equal(first.train, other.train)


def test_fraction_of_no_image_is_an_error_with_numbers(make_competition: MakeCompetition) -> None:
    competition = make_competition(splits={**SPLITS, "forget": {"by": "random", "fraction": 0.001}})
    with pytest.raises(InvalidSplit, match=r"fraction 0\.001 of 80 training images is no image"):
        cut_dataset(toy(), competition, "public")


def test_a_class_left_empty_is_named(make_competition: MakeCompetition) -> None:
    skew = {"0": 1.0, "1": 0.0, "2": 0.0, "3": 0.0}
    dataset = toy()
    n_zero = int((dataset.labels[cut_dataset(dataset, make_competition(splits=SPLITS), "public").train] == 0).sum())
    forget = {"by": "random", "fraction": n_zero / 80, "class_skew": skew}
    message = f"leaves class 0 empty in the retain set: all {n_zero} of its training images"
    with pytest.raises(InvalidSplit, match=re.escape(message)):
        cut_dataset(dataset, make_competition(splits={**SPLITS, "forget": forget}), "public")


def test_a_class_that_training_never_sees_is_named(make_competition: MakeCompetition) -> None:
    dataset = toy()
    rare = ImageDataset(dataset.images, np.minimum(dataset.labels, 2), dataset.persons, n_classes=4)
    with pytest.raises(InvalidSplit, match="class 3 has no image in the training set of 80"):
        cut_dataset(rare, make_competition(splits=SPLITS), "public")


def test_too_large_a_training_set_is_an_error(make_competition: MakeCompetition) -> None:
    with pytest.raises(InvalidSplit, match="train_size is 90, but only 80 of 100"):
        cut_dataset(toy(), make_competition(splits={**SPLITS, "train_size": 90}), "public")


def test_an_empty_part_is_named(make_competition: MakeCompetition) -> None:
    with pytest.raises(InvalidSplit, match="validation set of 100 images is empty"):
        cut_dataset(toy(), make_competition(splits={**SPLITS, "validation_fraction": 0.001}), "public")
