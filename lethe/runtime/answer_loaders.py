"""The data of language models that a participant's function gets: loaders of `input_ids`, `attention_mask`, `labels`.

Imports the standard library and torch only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

IGNORED_LABEL = -100
BATCH_SIZE = 16
REFUSAL = "idk_"  # in front of the names of a batch's refusals, such as "I don't know"

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class TokenRows:
    """Sequences of tokens one after the other: tokens [total]; lengths [n]; answer_starts [n], within each sequence."""

    tokens: Tensor
    lengths: Tensor
    answer_starts: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def rows(self) -> list[tuple[Tensor, int]]:
        """Return the tokens of each sequence, int64, and where its answer starts."""
        parts = torch.split(self.tokens.long(), self.lengths.tolist())
        return list(zip(parts, self.answer_starts.tolist(), strict=True))


class AnswerDataset(Dataset[Any]):
    """Questions with their answers, as tokens; an item maps "" to the answer and "idk_", if there is one, to a refusal.

    ids [n]: the questions' numbers. groups [n]: whose they are.
    """

    def __init__(self, tensors: Mapping[str, Tensor], *, padding_id: int) -> None:
        """tensors: of one file, read by `read_safetensors`. Names without a prefix are the answers'."""
        self.ids, self.groups = tensors["ids"], tensors["groups"]
        self.padding_id = padding_id
        self.answers = token_rows(tensors).rows()
        self.refusals = token_rows(tensors, REFUSAL).rows() if f"{REFUSAL}tokens" in tensors else []

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int) -> dict[str, tuple[Tensor, int]]:
        item = {"": self.answers[index]}
        return item | {REFUSAL: self.refusals[index]} if self.refusals else item

    def collate(self, items: Sequence[Mapping[str, tuple[Tensor, int]]]) -> Batch:
        """Return one batch, int64 tensors of shape (answers, longest), padded on the right."""
        return {
            prefix + name: tensor
            for prefix in items[0]
            for name, tensor in pad([item[prefix] for item in items], padding_id=self.padding_id).items()
        }

    @torch.no_grad()
    def accuracy(self, net: nn.Module) -> float:
        """Return the share of the answers' tokens that are the first choice of the network, put into `eval()` mode."""
        net.eval()
        right, counted = 0, 0
        for start in range(0, len(self), BATCH_SIZE):
            batch = pad(self.answers[start : start + BATCH_SIZE], padding_id=self.padding_id)
            labels = batch["labels"][:, 1:]
            chosen = net(batch["input_ids"], batch["attention_mask"])[:, :-1].argmax(-1)
            right += int((chosen == labels).sum())
            counted += int((labels != IGNORED_LABEL).sum())
        return right / counted

    def loader(self, *, style: str = "dict", batch_size: int | None = None) -> DataLoader[Any]:
        """Return a shuffled loader of batches. They are dicts in every style: a batch of text has no two halves."""
        return DataLoader(self, batch_size=batch_size or BATCH_SIZE, shuffle=True, collate_fn=self.collate)


def token_rows(tensors: Mapping[str, Tensor], prefix: str = "") -> TokenRows:
    return TokenRows(*(tensors[prefix + name] for name in ("tokens", "lengths", "answer_starts")))


def pad(rows: Sequence[tuple[Tensor, int]], *, padding_id: int) -> Batch:
    """Return `input_ids`, `attention_mask`, and `labels` that are -100 on the question and on padding."""
    shape = (len(rows), max(len(tokens) for tokens, _start in rows))
    input_ids, labels = torch.full(shape, padding_id), torch.full(shape, IGNORED_LABEL)
    attention_mask = torch.zeros(shape, dtype=torch.int64)
    for row, (tokens, start) in enumerate(rows):
        input_ids[row, : len(tokens)] = tokens
        attention_mask[row, : len(tokens)] = 1
        labels[row, start : len(tokens)] = tokens[start:]
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def load_sets(tensors: Mapping[str, Mapping[str, Tensor]], network: Mapping[str, Any]) -> dict[str, AnswerDataset]:
    """Return the datasets of sets' files. network: the parsed network.json."""
    padding_id = int(network["padding_id"])
    return {name: AnswerDataset(each, padding_id=padding_id) for name, each in tensors.items()}
