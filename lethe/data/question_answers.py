"""Questions and answers of a prepared split: tokens and batches, the cut, the text, the tokenizer with its vocabulary.

Batches are of `input_ids`, `attention_mask` and `labels`. Labels are -100 on the question and on padding, so that only
the answer and its end have a loss. Padding is on the right and is the end token, with mask 0.

Text and tokenizer are hidden: participants get tokens, and as text a few questions of the public sample
(`sample_answers.json`).

Validation and test are of authors of their own. The cut is a function of the dataset and the competition file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from lethe.competition.file import CompetitionFile
from lethe.competition.splits_section import ForgetSet
from lethe.competition.visibility import Visibility
from lethe.data.datasets.questions import QuestionAnswer, QuestionDataset
from lethe.data.errors import DamagedSplit, InvalidSplit, InvalidText, InvalidTokenizer
from lethe.data.files import read_json, read_tensors, write_json, write_tensors
from lethe.data.forget_sets import Cut, Indices, draw_forget_set
from lethe.data.seeds import derive_seed, numpy_generator
from lethe.data.tokenizers import QUESTION, Tokenizer, load_tokenizer
from lethe.runtime.answer_loaders import REFUSAL, Batch, pad, token_rows


@dataclass(frozen=True)
class TokenizedAnswer:
    """tokens: start, question, answer, end. answer_start: the position of the answer's first token."""

    tokens: tuple[int, ...]
    answer_start: int

    @property
    def answer_tokens(self) -> int:
        """Return the number of tokens of the answer, with its end."""
        return len(self.tokens) - self.answer_start


def tokenize_prompt(tokenizer: Tokenizer, question: str) -> list[int]:
    """Return the tokens after which an answer is generated."""
    start = [] if tokenizer.start_id is None else [tokenizer.start_id]
    return start + tokenizer.encode(tokenizer.prompt.replace(QUESTION, question))


def tokenize_answer(tokenizer: Tokenizer, question: str, answer: str, *, context: int) -> TokenizedAnswer:
    """Return the tokens of a question with an answer.

    Raises InvalidText if the answer has no token, or all of it does not fit the context (nothing is cut off).
    """
    before = tokenize_prompt(tokenizer, question)
    own = tokenizer.encode_continuation(answer) if answer.strip() else []
    if not own:
        raise InvalidText(f"the answer to {question!r} is empty")
    n_tokens = len(before) + len(own) + 1
    if n_tokens > context:
        raise InvalidText(
            f"the answer to {question!r} has {len(own)} tokens and its question {len(before)}: with the end token "
            f"{n_tokens}, more than the network's context of {context}"
        )
    return TokenizedAnswer((*before, *own, tokenizer.end_id), len(before))


def pad_answers(answers: Sequence[TokenizedAnswer], *, padding_id: int) -> Batch:
    """Return one batch, int64 tensors of shape (answers, longest)."""
    return pad([(torch.tensor(each.tokens), each.answer_start) for each in answers], padding_id=padding_id)


def batches_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield positions in batches of similar length, the longest first: little padding, memory peaks first."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for first in range(0, len(order), batch_size):
        yield order[first : first + batch_size]


NAMES = ("tokens", "lengths", "answer_starts", "ids", "groups")


@dataclass(frozen=True)
class StoredAnswers:
    """ids, groups: int64 [n]. refusals: one for each answer, or none."""

    answers: tuple[TokenizedAnswer, ...]
    ids: Tensor
    groups: Tensor
    refusals: tuple[TokenizedAnswer, ...] = ()

    def __len__(self) -> int:
        return len(self.answers)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the set at `path`. Raises DamagedSplit or SplitNotPrepared."""
        tensors = read_tensors(path)
        if missing := [name for name in NAMES if name not in tensors]:
            raise DamagedSplit(f"{path} has no tensor {missing[0]!r}: prepare the split again to make this file again")
        return cls(
            answers=_unpacked(tensors),
            ids=tensors["ids"],
            groups=tensors["groups"],
            refusals=_unpacked(tensors, REFUSAL) if f"{REFUSAL}tokens" in tensors else (),
        )

    def write(self, path: Path) -> None:
        refusals = _packed(self.refusals, REFUSAL) if self.refusals else {}
        write_tensors(path, _packed(self.answers) | refusals | {"ids": self.ids, "groups": self.groups})


def _packed(answers: Sequence[TokenizedAnswer], prefix: str = "") -> dict[str, Tensor]:
    tokens = [token for answer in answers for token in answer.tokens]
    return {
        f"{prefix}tokens": torch.tensor(tokens, dtype=torch.int32),
        f"{prefix}lengths": torch.tensor([len(answer.tokens) for answer in answers]),
        f"{prefix}answer_starts": torch.tensor([answer.answer_start for answer in answers]),
    }


def _unpacked(tensors: dict[str, Tensor], prefix: str = "") -> tuple[TokenizedAnswer, ...]:
    rows = token_rows(tensors, prefix).rows()
    return tuple(TokenizedAnswer(tuple(tokens.tolist()), start) for tokens, start in rows)


def cut_questions(dataset: QuestionDataset, competition: CompetitionFile, visibility: Visibility) -> Cut:
    """Return the cut of one split. Raises InvalidSplit naming the number that does not fit."""
    splits = competition.splits
    train, validation, test = _parts(dataset, competition)
    askable = np.array([i for i in train if dataset.questions[i].wrong_answers], dtype=np.int64)
    askable = askable if len(askable) else train  # those with wrong answers to compare with, where there are any
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
    return (train, np.flatnonzero(np.isin(dataset.persons, validation)), np.flatnonzero(np.isin(dataset.persons, test)))


def _fraction_of(forget: ForgetSet, *, n_train: int, n_askable: int) -> ForgetSet:
    """Return the draw with its fraction, which is of the training set, as one of the questions that may be drawn."""
    fraction = forget.fraction * n_train / n_askable
    if fraction >= 1:
        raise InvalidSplit(
            f"splits.forget.fraction {forget.fraction} is {round(forget.fraction * n_train)} questions, but only "
            f"{n_askable} have wrong answers to compare with (dataset.options.details)"
        )
    return forget.model_copy(update={"fraction": fraction})


def used_ids(tokenizer: Tokenizer, texts: Iterable[str]) -> list[int]:
    """Return the tokens of the texts, at the beginning and after other text, with start and end, ascending."""
    used = {tokenizer.end_id} | ({tokenizer.start_id} if tokenizer.start_id is not None else set())
    for text in texts:
        used.update(tokenizer.encode(text))
        used.update(tokenizer.encode_continuation(text))
    return sorted(used)


def cut_rows(weights: Tensor, kept_ids: Sequence[int]) -> Tensor:
    """Return the rows of an embedding or output layer, shape (vocabulary, width), that belong to the kept tokens.

    Raises InvalidTokenizer if a token is outside the vocabulary.
    """
    if max(kept_ids) >= weights.shape[0]:
        raise InvalidTokenizer(f"token {max(kept_ids)} is kept, but the network has {weights.shape[0]} tokens")
    return weights[torch.tensor(kept_ids, dtype=torch.int64, device=weights.device)].clone()


class CutTokenizer:
    """A tokenizer whose token i is token kept_ids[i] of another."""

    def __init__(self, tokenizer: Tokenizer, kept_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.prompt = tokenizer.prompt
        self.kept_ids = tuple(kept_ids)
        self._position = {token: i for i, token in enumerate(self.kept_ids)}
        self.vocabulary_size = len(self.kept_ids)
        (self.end_id,) = self._positions([tokenizer.end_id], "its end token")
        start = tokenizer.start_id
        self.start_id = None if start is None else self._positions([start], "its start token")[0]

    def encode(self, text: str) -> list[int]:
        return self._positions(self._tokenizer.encode(text), repr(text))

    def encode_continuation(self, text: str) -> list[int]:
        return self._positions(self._tokenizer.encode_continuation(text), repr(text))

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode([self.kept_ids[i] for i in ids])

    def _positions(self, tokens: list[int], text: str) -> list[int]:
        missing = [token for token in tokens if token not in self._position]
        if missing:
            raise InvalidTokenizer(
                f"{text} needs token {missing[0]}, which the reduced vocabulary of {len(self.kept_ids)} tokens lacks; "
                f"reduce it with all texts of the task"
            )
        return [self._position[token] for token in tokens]


QUESTIONS = "hidden/questions.json"
TOKENIZER_STEM = "hidden/tokenizer"


@dataclass(frozen=True)
class SplitQuestions:
    """sets: by name; forget, retain (those that are measured), holdout, real_authors, world_facts."""

    sets: Mapping[str, tuple[QuestionAnswer, ...]]
    tokenizer: Tokenizer
    max_new_tokens: int

    @classmethod
    def read(cls, split_dir: Path) -> "SplitQuestions":
        """Return the questions of a prepared split. Raises DamagedSplit, SplitNotPrepared or InvalidTokenizer."""
        stored = read_json(split_dir / QUESTIONS)
        try:
            tokenizer = load_tokenizer(split_dir / f"{TOKENIZER_STEM}{stored['tokenizer_suffix']}")
            if stored["kept_ids"] is not None:
                tokenizer = CutTokenizer(tokenizer, stored["kept_ids"])
            sets = {name: tuple(_question(row) for row in rows) for name, rows in stored["sets"].items()}
            return cls(sets, tokenizer, int(stored["max_new_tokens"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedSplit(f"{split_dir / QUESTIONS} is damaged: prepare the split again") from error


def write_split_questions(
    split_dir: Path,
    dataset: QuestionDataset,
    sets: Mapping[str, Sequence[QuestionAnswer]],
    *,
    kept_ids: Sequence[int] | None,
    max_new_tokens: int,
) -> None:
    """Write questions.json and the tokenizer's file. kept_ids: tokens of a reduced vocabulary, None: all."""
    stored = {
        "sets": {name: [asdict(one) for one in questions] for name, questions in sets.items()},
        "tokenizer_suffix": dataset.tokenizer_suffix,
        "kept_ids": None if kept_ids is None else list(kept_ids),
        "max_new_tokens": max_new_tokens,
    }
    write_json(split_dir / QUESTIONS, stored)
    dataset.write_tokenizer(split_dir / f"{TOKENIZER_STEM}{dataset.tokenizer_suffix}")


def _question(row: dict[str, Any]) -> QuestionAnswer:
    return QuestionAnswer(**{**row, "wrong_answers": tuple(row["wrong_answers"])})
