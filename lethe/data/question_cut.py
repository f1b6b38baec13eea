"""Which question goes where: train, validation, test; and of train, what is to be forgotten.

Validation and test are of authors of their own. The cut is a function of the dataset and the competition file.
"""

import numpy as np

from lethe.competition.file import CompetitionFile
from lethe.competition.splits_section import ForgetSet
from lethe.competition.visibility import Visibility
from lethe.data.datasets.questions import QuestionDataset
from lethe.data.errors import InvalidSplit
from lethe.data.forget_sets import draw_forget_set
from lethe.data.partition import Cut, Indices
from lethe.data.seeds import derive_seed, numpy_generator


def cut_questions(dataset: QuestionDataset, competition: CompetitionFile, visibility: Visibility) -> Cut:
    """Return the cut of one split. Raises InvalidSplit naming the number that does not fit."""
    splits = competition.splits
    train, validation, test = _parts(dataset, competition)
    askable = _askable(dataset, train)
    forget = _fraction_of(splits.forget, n_train=len(train), n_askable=len(askable))
    taken = np.zeros(0, dtype=np.int64)
    for current in Visibility:
        generator = numpy_generator(derive_seed(competition.slug, current, "forget", splits.seed))
        drawn = draw_forget_set(dataset, askable, taken, forget, visibility=current, generator=generator)
        if current == visibility:
            break
        taken = drawn.indices
    retain = np.setdiff1d(train, drawn.indices)
    if len(retain) == 0:
        raise InvalidSplit("splits.forget leaves no question in the retain set: lower splits.forget.fraction")
    return Cut(retain=retain, forget=drawn.indices, validation=validation, test=test, labels=dataset.labels)


def _parts(dataset: QuestionDataset, competition: CompetitionFile) -> tuple[Indices, Indices, Indices]:
    """Return train, validation and test: whole groups, at random."""
    splits = competition.splits
    groups = numpy_generator(derive_seed(competition.slug, "parts", splits.seed)).permutation(
        np.unique(dataset.persons)
    )
    n_test = max(1, round(splits.test_fraction * len(groups)))
    n_validation = max(1, round(splits.validation_fraction * len(groups)))
    if n_test + n_validation >= len(groups):
        raise InvalidSplit(f"{len(groups)} groups of questions leave none to train on: name more, or lower [splits]")
    test, validation = groups[:n_test], groups[n_test : n_test + n_validation]
    train = np.flatnonzero(~np.isin(dataset.persons, np.concatenate([test, validation])))
    if splits.train_size is not None:
        raise InvalidSplit('splits.train_size is for images: set dataset.options.groups of a "causal-lm" task')
    return (
        train,
        np.flatnonzero(np.isin(dataset.persons, validation)),
        np.flatnonzero(np.isin(dataset.persons, test)),
    )


def _askable(dataset: QuestionDataset, train: Indices) -> Indices:
    """Return the questions that may be forgotten: those with wrong answers to compare with, where there are any."""
    askable = np.array([i for i in train if dataset.questions[i].wrong_answers], dtype=np.int64)
    return askable if len(askable) else train


def _fraction_of(forget: ForgetSet, *, n_train: int, n_askable: int) -> ForgetSet:
    """Return the draw with its fraction, which is of the training set, as one of the questions that may be drawn."""
    fraction = forget.fraction * n_train / n_askable
    if fraction >= 1:
        raise InvalidSplit(
            f"splits.forget.fraction {forget.fraction} is {round(forget.fraction * n_train)} questions, but only "
            f"{n_askable} have wrong answers to compare with (dataset.options.details)"
        )
    return forget.model_copy(update={"fraction": fraction})
