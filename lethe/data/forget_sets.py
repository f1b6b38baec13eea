"""Which image goes where: train, validation, test; and of train the forget set: by person, difficulty, class, ids ...

The cut is a function of the dataset and the competition file. Public and private splits share the three parts and have
forget sets without a common image or person. For questions: question_answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from lethe.competition.file import CompetitionFile
from lethe.competition.splits_section import ForgetSet
from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.data.seeds import derive_seed, numpy_generator

Indices = NDArray[np.int64]
DIFFICULTY = "difficulty"  # of each example: a dataset's column
NAMED_CLASSES = 20  # in a message


class Labelled(Protocol):
    """What a forget set is drawn from: labels and persons, int64 [n], and the number of classes.

    example: what one of its rows is, for people.
    """

    example: ClassVar[str]

    @property
    def labels(self) -> NDArray[np.int64]: ...

    @property
    def persons(self) -> NDArray[np.int64]: ...

    @property
    def n_classes(self) -> int: ...


@dataclass(frozen=True)
class Drawn:
    """The forget set (ascending positions in the dataset), and the labels for training on the complete data."""

    indices: Indices
    labels: NDArray[np.int64]


def draw_forget_set(
    dataset: Labelled,
    train: Indices,
    taken: Indices,
    forget: ForgetSet,
    *,
    visibility: Visibility,
    generator: np.random.Generator,
) -> Drawn:
    """Return the forget set of one split.

    taken: examples that another split forgets; neither they nor their persons are drawn again.
    Raises InvalidSplit where nothing (or too little) is left to draw from.
    """
    free = train[~np.isin(dataset.persons[train], dataset.persons[taken])]
    labels = dataset.labels
    if forget.by == "class":
        classes = _named(forget.classes, forget.private_classes, visibility, "classes")
        if unknown := [each for each in classes if not 0 <= each < dataset.n_classes]:
            raise InvalidSplit(f"the {visibility} split is to forget class {unknown[0]}: {_allowed(dataset)}")
        chosen = free[np.isin(labels[free], classes)]
    elif forget.by == "ids":
        chosen = _given(free, _named(forget.ids, forget.private_ids, visibility, "ids"))
    elif forget.by == "interclass-confusion":
        chosen, labels = _confused(dataset, free, _wanted(dataset, forget, train), forget, generator)
    elif forget.by == "iid-confusion":
        chosen = _evenly(dataset, free, _wanted(dataset, forget, train), generator)
        labels = _mislabelled(dataset, chosen, generator)
    elif forget.by == "backdoor":
        chosen, labels = _poisoned(dataset, free, _wanted(dataset, forget, train), forget, generator)
    elif forget.by == "difficulty":
        chosen = _hardest(dataset, free, _wanted(dataset, forget, train))
    elif forget.by == "random":
        chosen = _at_random(dataset, free, _wanted(dataset, forget, train), forget, generator)
    else:
        chosen = _whole_persons(dataset, free, _wanted(dataset, forget, train), forget, generator)
    if len(chosen) == 0:
        raise InvalidSplit(f"the {visibility} forget set (splits.forget.by = {forget.by!r}) would be empty")
    return Drawn(indices=np.sort(chosen), labels=labels)


def _wanted(dataset: Labelled, forget: ForgetSet, train: Indices) -> int:
    wanted = round(forget.fraction * len(train))
    if wanted == 0:
        raise InvalidSplit(
            f"splits.forget.fraction {forget.fraction} of {len(train)} training {dataset.example}s is no "
            f"{dataset.example}: the forget set would be empty; use at least {1 / len(train):.2g}"
        )
    return wanted


def _weights(dataset: Labelled, positions: Indices, forget: ForgetSet) -> NDArray[np.float64]:
    weight_of_class = np.ones(dataset.n_classes)
    for name, weight in forget.class_skew.items():
        if not name.isdigit() or int(name) >= dataset.n_classes:
            raise InvalidSplit(f"splits.forget.class_skew names class {name!r}: {_allowed(dataset)}")
        if weight < 0:
            raise InvalidSplit(f"splits.forget.class_skew of class {name} must be >= 0, was {weight}")
        weight_of_class[int(name)] = weight
    return weight_of_class[dataset.labels[positions]]


def _allowed(dataset: Labelled) -> str:
    """Return which numbers classes have, with the names of the first."""
    names = tuple(getattr(dataset, "class_names", ()))
    named = ", ".join(f"{number}: {name}" for number, name in enumerate(names[:NAMED_CLASSES]))
    more = ", …" if len(names) > NAMED_CLASSES else ""
    return f"allowed are 0..{dataset.n_classes - 1}" + (f" ({named}{more})" if names else "")


def _at_random(
    dataset: Labelled, free: Indices, wanted: int, forget: ForgetSet, generator: np.random.Generator
) -> Indices:
    weights = _weights(dataset, free, forget)
    possible = free[weights > 0]
    if wanted > len(possible):
        raise InvalidSplit(f"{wanted} {dataset.example}s are to be forgotten, but only {len(possible)} can be drawn")
    return free[_weighted_order(weights, generator)[:wanted]]


def _hardest(dataset: Labelled, free: Indices, wanted: int) -> Indices:
    """Return the examples with the largest `difficulty`; of equal ones the first."""
    values = np.asarray(getattr(dataset, "columns", {}).get(DIFFICULTY, ()))
    if values.dtype.kind not in "fiu" or not values.size or not np.isfinite(values).all():
        raise InvalidSplit(
            f"splits.forget.by = 'difficulty' needs a finite number for each {dataset.example}: difficulty.npy beside "
            "the arrays of the dataset `numpy`"
        )
    if wanted > len(free):
        raise InvalidSplit(f"{wanted} {dataset.example}s are to be forgotten, but only {len(free)} can be drawn")
    return free[np.argsort(-values[free].astype(np.float64), kind="stable")[:wanted]]


def _whole_persons(
    dataset: Labelled, free: Indices, wanted: int, forget: ForgetSet, generator: np.random.Generator
) -> Indices:
    """Return all examples of persons drawn one after the other, for as long as the number wanted is not passed.

    A person who would pass it is skipped, so the set is at most one person with many examples short of `wanted`.
    """
    persons, person_of, counts = np.unique(dataset.persons[free], return_inverse=True, return_counts=True)
    weights = np.bincount(person_of, weights=_weights(dataset, free, forget)) / counts
    chosen: list[int] = []
    n_chosen = 0
    for person in _weighted_order(weights, generator):
        if n_chosen + counts[person] <= wanted:
            chosen.append(person)
            n_chosen += int(counts[person])
    if not chosen and len(persons):
        raise InvalidSplit(
            f"splits.forget.fraction allows {wanted} {dataset.example}s, but the smallest person has {counts.min()}: "
            "the forget set would be empty"
        )
    return free[np.isin(person_of, chosen)]


def _weighted_order(weights: NDArray[np.float64], generator: np.random.Generator) -> Indices:
    """Return positions drawn without replacement with these relative weights (Efraimidis and Spirakis 2006)."""
    keys = generator.exponential(size=len(weights))
    possible = weights > 0
    keys = np.divide(keys, weights, out=np.full_like(keys, np.inf), where=possible)
    return np.argsort(keys, kind="stable")[: int(possible.sum())]


def _confused(
    dataset: Labelled, free: Indices, wanted: int, forget: ForgetSet, generator: np.random.Generator
) -> tuple[Indices, NDArray[np.int64]]:
    """Return `wanted` examples, half of each of two classes, with swapped labels (Goel et al. 2023, section 2.3)."""
    if len(forget.classes) != 2 or forget.classes[0] == forget.classes[1]:
        raise InvalidSplit(f"interclass-confusion needs two classes in splits.forget.classes, had {forget.classes}")
    labels = dataset.labels.copy()
    parts: list[Indices] = []
    for label, other in (forget.classes, forget.classes[::-1]):
        of_class = free[dataset.labels[free] == label]
        half = wanted // 2 if parts else (wanted + 1) // 2
        if half > len(of_class):
            raise InvalidSplit(f"class {label} has {len(of_class)} training images left, {half} are to be confused")
        part = generator.permutation(of_class)[:half]
        labels[part] = other
        parts.append(part)
    return np.concatenate(parts), labels


def _evenly(dataset: Labelled, free: Indices, wanted: int, generator: np.random.Generator) -> Indices:
    """Return `wanted` examples, as many of each class as of any other, up to one."""
    shares = np.full(dataset.n_classes, wanted // dataset.n_classes)
    shares[generator.permutation(dataset.n_classes)[: wanted % dataset.n_classes]] += 1
    parts: list[Indices] = []
    for label, share in enumerate(shares):
        of_class = free[dataset.labels[free] == label]
        if share > len(of_class):
            raise InvalidSplit(f"class {label} has {len(of_class)} training images left, {share} are to be confused")
        parts.append(generator.permutation(of_class)[:share])
    return np.concatenate(parts)


def _mislabelled(dataset: Labelled, chosen: Indices, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return all labels, those of the chosen images each replaced by another class (Goel et al. 2023, section 2.3)."""
    labels = dataset.labels.copy()
    shifts = generator.integers(1, dataset.n_classes, size=len(chosen))
    labels[chosen] = (labels[chosen] + shifts) % dataset.n_classes
    return labels


def _poisoned(
    dataset: Labelled, free: Indices, wanted: int, forget: ForgetSet, generator: np.random.Generator
) -> tuple[Indices, NDArray[np.int64]]:
    """Return `wanted` images of other classes, labelled as the class that the trigger leads to, and all labels."""
    if len(forget.classes) != 1 or not 0 <= forget.classes[0] < dataset.n_classes:
        raise InvalidSplit(
            f"backdoor needs one class of 0..{dataset.n_classes - 1} in splits.forget.classes, had {forget.classes}"
        )
    others = free[dataset.labels[free] != forget.classes[0]]
    chosen = _at_random(dataset, others, wanted, forget, generator)
    labels = dataset.labels.copy()
    labels[chosen] = forget.classes[0]
    return chosen, labels


def _given(free: Indices, ids: tuple[int, ...]) -> Indices:
    missing = np.setdiff1d(np.asarray(ids, dtype=np.int64), free)
    if len(missing):
        raise InvalidSplit(
            f"{len(missing)} of {len(ids)} forget ids are not in this split's training set, the first is {missing[0]}"
        )
    return np.unique(np.asarray(ids, dtype=np.int64))


def _named(public: tuple[int, ...], private: tuple[int, ...], visibility: Visibility, name: str) -> tuple[int, ...]:
    chosen = public if visibility == Visibility.PUBLIC else private
    field = name if visibility == Visibility.PUBLIC else f"private_{name}"
    if not chosen:
        raise InvalidSplit(f"splits.forget.{field} must name what the {visibility} split forgets; it was empty")
    return chosen


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
