"""Which image goes where: train, validation, test; and of train, what is to be forgotten. For questions: question_cut.

The cut is a function of the dataset and the competition file. Public and private splits share the three parts and
have forget sets without a common image or person.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lethe.competition.file import CompetitionFile
from lethe.competition.splits_section import ForgetSet
from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.data.forget_sets import Labelled, draw_forget_set
from lethe.data.seeds import derive_seed, numpy_generator

Indices = NDArray[np.int64]


class Images(Labelled, Protocol):
    """What is cut: an ImageDataset, or a list of images that nobody has opened yet."""

    @property
    def is_test(self) -> NDArray[np.bool_] | None: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Cut:
    """One split of a dataset of any kind: positions in it, each ascending.

    labels: those that training uses, confused ones included. poisoned: the forget images are stored with a backdoor's
    trigger.
    """

    retain: Indices
    forget: Indices
    validation: Indices
    test: Indices
    labels: NDArray[np.int64]
    poisoned: bool = False

    @property
    def train(self) -> Indices:
        return np.sort(np.concatenate([self.retain, self.forget]))

    def sets(self) -> Iterator[tuple[str, Indices]]:
        yield "retain", self.retain
        yield "forget", self.forget
        yield "validation", self.validation
        yield "test", self.test


def cut_dataset(dataset: Images, competition: CompetitionFile, visibility: Visibility) -> Cut:
    """Return the cut of one split. Raises InvalidSplit naming the class or number that does not fit."""
    splits = competition.splits
    train, validation, test = _parts(dataset, competition)
    taken = np.zeros(0, dtype=np.int64)
    for current in Visibility:
        generator = numpy_generator(derive_seed(competition.slug, current, "forget", splits.seed))
        drawn = draw_forget_set(dataset, train, taken, splits.forget, visibility=current, generator=generator)
        if current == visibility:
            break
        taken = drawn.indices
    retain = np.setdiff1d(train, drawn.indices)
    _check_classes(dataset, train, retain, splits.forget)
    poisoned = splits.forget.by == "backdoor"
    return Cut(retain, drawn.indices, validation, test, labels=drawn.labels, poisoned=poisoned)


def _parts(dataset: Images, competition: CompetitionFile) -> tuple[Indices, Indices, Indices]:
    """Return train, validation and test: at random over images, but for a test set that the dataset brings."""
    splits = competition.splits
    order = numpy_generator(derive_seed(competition.slug, "parts", splits.seed)).permutation(len(dataset))
    if dataset.is_test is not None:
        test = order[dataset.is_test[order]]
        rest = order[~dataset.is_test[order]]
        n_validation = round(splits.validation_fraction * len(rest))
    else:
        n_test = round(splits.test_fraction * len(order))
        test, rest = order[:n_test], order[n_test:]
        n_validation = round(splits.validation_fraction * len(order))
    validation, train = rest[:n_validation], rest[n_validation:]
    if splits.train_size is not None:
        if splits.train_size > len(train):
            raise InvalidSplit(
                f"splits.train_size is {splits.train_size}, but only {len(train)} of {len(dataset)} images are left "
                f"after validation ({len(validation)}) and test ({len(test)})"
            )
        train = train[: splits.train_size]
    for name, part in (("train", train), ("validation", validation), ("test", test)):
        if len(part) == 0:
            raise InvalidSplit(f"the {name} set of {len(dataset)} images is empty: change the fractions in [splits]")
    return np.sort(train), np.sort(validation), np.sort(test)


def _check_classes(dataset: Images, train: Indices, retain: Indices, forget: ForgetSet) -> None:
    """A class that training has must be left in retain, unless the organiser asked to forget it whole."""
    before = np.bincount(dataset.labels[train], minlength=dataset.n_classes)
    after = np.bincount(dataset.labels[retain], minlength=dataset.n_classes)
    wanted = {*forget.classes, *forget.private_classes} if forget.by == "class" else set()
    for label in range(dataset.n_classes):
        if before[label] == 0:
            raise InvalidSplit(
                f"class {label} has no image in the training set of {len(train)}: raise splits.train_size"
            )
        if after[label] == 0 and label not in wanted:
            raise InvalidSplit(
                f"splits.forget leaves class {label} empty in the retain set: all {before[label]} of its training "
                f"images would be forgotten; lower splits.forget.fraction or its weight in class_skew"
            )
