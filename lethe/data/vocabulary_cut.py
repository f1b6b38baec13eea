"""A vocabulary reduced to the tokens that a task uses: a small network's largest part becomes a fraction of it."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lethe.data.errors import InvalidTokenizer
from lethe.data.tokenizers import Tokenizer


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
