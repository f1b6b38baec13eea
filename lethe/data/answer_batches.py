"""From questions and answers to batches of `input_ids`, `attention_mask` and `labels`.

Labels are -100 on the question and on padding, so that only the answer and its end have a loss. Padding is on the
right and is the end token, with mask 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lethe.data.text_errors import InvalidText
from lethe.data.tokenizers import QUESTION, Tokenizer

IGNORED_LABEL = -100
Batch = dict[str, Tensor]


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
    longest = max(len(answer.tokens) for answer in answers)
    input_ids = torch.full((len(answers), longest), padding_id)
    labels = torch.full((len(answers), longest), IGNORED_LABEL)
    attention_mask = torch.zeros(len(answers), longest, dtype=torch.int64)
    for row, answer in enumerate(answers):
        tokens = torch.tensor(answer.tokens)
        input_ids[row, : len(tokens)] = tokens
        attention_mask[row, : len(tokens)] = 1
        labels[row, answer.answer_start : len(tokens)] = tokens[answer.answer_start :]
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def batches_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield positions in batches of similar length, the longest first: the least padding, and memory peaks at once."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    for first in range(0, len(order), batch_size):
        yield order[first : first + batch_size]


class AnswerDataset(Dataset[Mapping[str, TokenizedAnswer]]):
    """What a loader draws from: every item maps "" to the answer and, where there are any, "idk_" to a refusal."""

    def __init__(self, answers: Sequence[TokenizedAnswer], refusals: Sequence[TokenizedAnswer] = ()) -> None:
        if refusals and len(refusals) != len(answers):
            raise InvalidText(f"{len(refusals)} refusals for {len(answers)} answers: expected one each, or none")
        self._answers, self._refusals = answers, refusals

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, index: int) -> Mapping[str, TokenizedAnswer]:
        item = {"": self._answers[index]}
        return item | {"idk_": self._refusals[index]} if self._refusals else item


def collate_answers(items: Sequence[Mapping[str, TokenizedAnswer]], *, padding_id: int) -> Batch:
    """Return the batch of items: `input_ids` and so on, and the same with `idk_` in front for refusals."""
    return {
        prefix + name: tensor
        for prefix in items[0]
        for name, tensor in pad_answers([item[prefix] for item in items], padding_id=padding_id).items()
    }


def answer_loader(
    dataset: AnswerDataset, *, batch_size: int, padding_id: int, seed: int | None = None
) -> DataLoader[Mapping[str, TokenizedAnswer]]:
    """Return a loader of batches; shuffled by its own generator if a seed is given, else in the dataset's order."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=generator is not None,
        generator=generator,
        collate_fn=partial(collate_answers, padding_id=padding_id),
    )
