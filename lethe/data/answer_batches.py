"""From questions and answers, also stored ones, to batches of `input_ids`, `attention_mask` and `labels`.

Labels are -100 on the question and on padding, so that only the answer and its end have a loss. Padding is on the
right and is the end token, with mask 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from lethe.data.errors import DamagedSplit, InvalidText
from lethe.data.files import read_tensors, write_tensors
from lethe.data.tokenizers import QUESTION, Tokenizer
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
    """Yield positions in batches of similar length, the longest first: the least padding, and memory peaks at once."""
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
