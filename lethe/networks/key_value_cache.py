"""Keys and values of the tokens that a language model has read, so that the next token costs one step."""

import torch
from torch import Tensor


class KeyValueCache:
    """length: tokens held. Room for `capacity` tokens of every row is taken at once."""

    def __init__(self, *, layers: int, rows: int, heads: int, capacity: int, like: Tensor, head_width: int) -> None:
        """Take the device and the type of `like`, a weight of the network."""
        shape = (layers, 2, rows, heads, capacity, head_width)
        self._held = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.length = 0

    def layer(self, index: int) -> "LayerCache":
        """Return the part of one layer."""
        return LayerCache(self._held[index], self.length)

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these (int64, in this order)."""
        self._held = self._held.index_select(2, rows)


class LayerCache:
    """Keys and values of one layer, shape (2, rows, heads, capacity, head width)."""

    def __init__(self, held: Tensor, length: int) -> None:
        self._held = held
        self._length = length

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of new tokens; return those of all tokens, (rows, heads, tokens, head width) each."""
        end = self._length + key.shape[2]
        self._held[0, :, :, self._length : end] = key
        self._held[1, :, :, self._length : end] = value
        return self._held[0, :, :, :end], self._held[1, :, :, :end]
