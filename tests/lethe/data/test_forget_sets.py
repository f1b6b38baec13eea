from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe.competition.splits_section import ForgetSet
from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.data.forget_sets import Drawn, draw_forget_set
from tests.support.toy_images import toy

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


def test_interclass_confusion_swaps_labels_of_the_forget_set() -> None:
    drawn = draw(by="interclass-confusion", fraction=0.2, classes=(0, 1))
    labels = toy().labels
    changed = np.flatnonzero(drawn.labels != labels)
    assert np.array_equal(changed, drawn.indices)
    assert len(drawn.indices) == 16
    assert np.array_equal(drawn.labels[changed], 1 - labels[changed])
    assert (labels[changed] == 0).sum() == 8


def test_iid_confusion_gives_every_image_another_class() -> None:
    drawn = draw(by="iid-confusion", fraction=0.2)
    labels = toy().labels
    changed = np.flatnonzero(drawn.labels != labels)
    assert np.array_equal(changed, drawn.indices)
    assert len(changed) == 16
    assert np.ptp(np.bincount(labels[changed], minlength=toy().n_classes)) <= 1


def test_backdoor_gives_other_classes_the_triggers_class() -> None:
    drawn = draw(by="backdoor", fraction=0.2, classes=(1,))
    labels = toy().labels
    assert np.array_equal(np.flatnonzero(drawn.labels != labels), drawn.indices)
    assert len(drawn.indices) == 16
    assert set(drawn.labels[drawn.indices]) == {1}


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
