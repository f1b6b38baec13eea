"""Which images are forgotten, and how a dataset is cut into the parts of a split."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe.competition.splits_section import ForgetSet
from lethe.competition.visibility import Visibility
from lethe.data.datasets.image_dataset import ImageDataset
from lethe.data.errors import InvalidSplit
from lethe.data.forget_sets import Drawn, cut_dataset, draw_forget_set
from tests.lethe.conftest import MakeCompetition
from tests.support.images import toy

TRAIN = np.arange(80)


def draw(
    *, visibility: Any = "public", taken: tuple[int, ...] = (), seed: int = 0, persons: int = 25, **forget: Any
) -> Drawn:
    return draw_forget_set(
        toy(persons=persons),
        TRAIN,
        np.array(taken, dtype=np.int64),
        ForgetSet(**forget),
        visibility=visibility,
        generator=np.random.default_rng(seed),
    )


def test_class_skew_draws_the_heavy_class_more_often() -> None:
    counts = sum(
        np.bincount(draw(by="random", fraction=0.1, class_skew={"0": 9.0}, seed=seed).indices % 4, minlength=4)
        for seed in range(40)
    )
    share = counts[0] / counts.sum()
    assert 0.55 < share < 0.85  # 9 / 12 at first, less as the class is used up


def test_by_difficulty_takes_the_hardest_that_no_other_split_forgets() -> None:
    values = np.arange(100.0)
    values[7], values[90] = 1000.0, 2000.0  # 90 is no training image
    dataset = replace(toy(), columns={"difficulty": values})
    given = {"forget": ForgetSet(by="difficulty", fraction=0.05), "generator": np.random.default_rng(0)}
    nothing = np.zeros(0, dtype=np.int64)
    public = draw_forget_set(dataset, TRAIN, nothing, visibility=Visibility.PUBLIC, **given).indices
    assert public.tolist() == [7, 77, 78, 79]
    private = draw_forget_set(dataset, TRAIN, public, visibility=Visibility.PRIVATE, **given).indices
    assert not set(dataset.persons[private]) & set(dataset.persons[public])
    assert private.tolist() == [73, 74, 75, 76]


@pytest.mark.parametrize("values", [None, np.full(100, np.nan), np.array(["a"] * 100)])
def test_by_difficulty_needs_a_number_for_each_image(values: Any) -> None:
    dataset = replace(toy(), columns={} if values is None else {"difficulty": values})
    with pytest.raises(InvalidSplit, match=r"difficulty\.npy"):
        draw_forget_set(
            dataset,
            TRAIN,
            np.zeros(0, dtype=np.int64),
            ForgetSet(by="difficulty"),
            visibility=Visibility.PUBLIC,
            generator=np.random.default_rng(0),
        )


def test_weight_zero_is_never_drawn() -> None:
    assert not (draw(by="random", fraction=0.5, class_skew={"2": 0.0}).indices % 4 == 2).any()


def test_by_person_takes_all_of_a_persons_training_images() -> None:
    drawn = draw(by="person", fraction=0.1)
    persons = set(drawn.indices % 25)
    assert set(drawn.indices) == {i for i in TRAIN if i % 25 in persons}


def test_persons_already_taken_are_not_drawn_again() -> None:
    drawn = draw(by="person", fraction=0.5, taken=(0, 1, 2))
    assert not set(drawn.indices % 25) & {0, 1, 2}


def test_by_class_forgets_each_visibilitys_own_classes() -> None:
    forget = {"by": "class", "classes": (1,), "private_classes": (2,)}
    assert set(draw(**forget).indices % 4) == {1}
    assert len(draw(**forget).indices) == 20
    assert set(draw(visibility="private", **forget).indices % 4) == {2}


def test_by_ids_takes_these_rows() -> None:
    assert list(draw(by="ids", ids=(7, 3)).indices) == [3, 7]


@pytest.mark.parametrize(
    ("by", "classes"), [("interclass-confusion", (0, 1)), ("iid-confusion", ()), ("backdoor", (1,))]
)
def test_only_the_forget_set_has_other_labels(by: str, classes: tuple[int, ...]) -> None:
    drawn, labels = draw(by=by, fraction=0.2, classes=classes), toy().labels
    changed = np.flatnonzero(drawn.labels != labels)
    assert np.array_equal(changed, drawn.indices)
    assert len(changed) == 16
    before = np.bincount(labels[changed], minlength=toy().n_classes)
    if by == "interclass-confusion":
        assert np.array_equal(drawn.labels[changed], 1 - labels[changed])
        assert before.tolist() == [8, 8, 0, 0]
    elif by == "iid-confusion":
        assert np.ptp(before) <= 1
    else:
        assert set(drawn.labels[changed]) == {1}


def test_backdoor_splits_share_no_image() -> None:
    public = draw(by="backdoor", fraction=0.2, classes=(1,))
    private = draw(by="backdoor", fraction=0.2, classes=(1,), visibility="private", taken=tuple(public.indices))
    assert not set(public.indices) & set(private.indices)


SKEW = {"by": "random", "fraction": 0.1}
REFUSED = {
    "too many": (
        {"by": "random", "fraction": 0.5, "class_skew": {"0": 0.0, "1": 0.0, "2": 0.0}},
        "40 images are to be forgotten, but only 20 can be drawn",
    ),
    "unknown class": (SKEW | {"class_skew": {"4": 1.0}}, r"allowed are 0\.\.3"),
    "named class": (SKEW | {"class_skew": {"blue": 1.0}}, r"allowed are 0\.\.3"),
    "negative weight": (SKEW | {"class_skew": {"1": -2.0}}, r"class 1 must be >= 0, was -2\.0"),
    "person too large": (
        {"by": "person", "fraction": 0.1, "persons": 2},
        "allows 8 images, but the smallest person has 40",
    ),
    "private classes": ({"visibility": "private", "by": "class", "classes": (1,)}, "private_classes must name"),
    "row outside": (
        {"by": "ids", "ids": (3, 95)},
        "1 of 2 forget ids are not in this split's training set, the first is 95",
    ),
    **{
        f"confusion of {classes}": ({"by": "interclass-confusion", "classes": classes}, "needs two classes")
        for classes in ((), (1,), (1, 1), (0, 1, 2))
    },
    **{
        f"backdoor of {classes}": (
            {"by": "backdoor", "fraction": 0.2, "classes": classes},
            r"backdoor needs one class of 0\.\.3",
        )
        for classes in ((), (1, 2), (4,))
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_forget_set_that_cannot_be_drawn_is_refused(case: str) -> None:
    asked, said = REFUSED[case]
    with pytest.raises(InvalidSplit, match=said):
        draw(**asked)


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
