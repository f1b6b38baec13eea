"""A set of a language model's split as stored on disk: questions with their answers, as tokens.

The keys are those that `lethe.runtime.answer_loaders` reads in the sandbox.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from lethe.data.answer_batches import TokenizedAnswer
from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors, write_tensors
from lethe.runtime.answer_loaders import REFUSAL, token_rows

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
