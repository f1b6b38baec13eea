"""What language models of blocks have in common: positions, attention, its mask and cache, a tied output layer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


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


class CausalNetwork(nn.Module):
    """`net(input_ids, attention_mask)` returns logits, (batch, tokens, vocabulary); position t predicts token t + 1.

    context: the longest sequence in tokens.
    """

    context: int

    def new_cache(self, *, rows: int, capacity: int) -> Any:
        """Return an empty cache for `rows` sequences of at most `capacity` tokens; its `keep_rows` drops rows."""
        raise NotImplementedError

    def next_logits(self, input_ids: Tensor, attention_mask: Tensor, cache: Any) -> Tensor:
        """Return logits of the token after the last one, (batch, vocabulary); the cache then holds these tokens too.

        attention_mask: covers the tokens in the cache and `input_ids`; 0 for padding on the left.
        """
        raise NotImplementedError


class Decoder(CausalNetwork):
    """A network of blocks in plain torch.

    A network sets these attributes, and says by `_start` what its blocks read. shape: its sizes (language_models.SIZES)
    and `vocabulary_size`. A block is called with states, positions as `_start` returned them, mask and its part of the
    cache.
    """

    shape: Any
    embedding: nn.Embedding
    blocks: nn.ModuleList
    norm: nn.Module

    def _start(self, input_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first block's states, and what blocks need of the positions."""
        raise NotImplementedError

    @property
    def context(self) -> int:  # type: ignore[override]  # read only, as the shape is
        return int(self.shape.context)

    def new_cache(self, *, rows: int, capacity: int) -> KeyValueCache:
        shape = self.shape
        return KeyValueCache(
            layers=shape.layers,
            rows=rows,
            heads=shape.heads,
            capacity=capacity,
            like=self.embedding.weight,
            head_width=shape.width // shape.heads,
        )

    def next_logits(self, input_ids: Tensor, attention_mask: Tensor, cache: Any) -> Tensor:
        return self.logits(self.hidden_states(input_ids, attention_mask, cache=cache)[:, -1])

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits, shape (batch, tokens, vocabulary).

        input_ids: int64, shape (batch, tokens). attention_mask: 1 for real tokens, 0 for padding on either side;
        without it all are real.
        """
        return self.logits(self.hidden_states(input_ids, attention_mask))

    def hidden_states(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, cache: KeyValueCache | None = None
    ) -> Tensor:
        """Return what the output layer reads, shape (batch, tokens, width).

        cache: keys and values of earlier tokens, to which those of `input_ids` are added; the mask then covers both.
        Raises ValueError if the sequence is longer than the context.
        """
        before = cache.length if cache else 0
        n_tokens = input_ids.shape[1]
        if before + n_tokens > self.shape.context:
            raise ValueError(f"{before + n_tokens} tokens do not fit the network's context of {self.shape.context}")
        positions = token_positions(input_ids, attention_mask)
        mask = attention_pattern(attention_mask, n_tokens, before)
        states, placed = self._start(input_ids, positions)
        for i, block in enumerate(self.blocks):
            states = block(states, placed, mask, cache.layer(i) if cache else None)
        if cache:
            cache.length += n_tokens
        result: Tensor = self.norm(states)
        return result

    def logits(self, states: Tensor) -> Tensor:
        """Return the output layer's logits for hidden states of any leading shape."""
        return functional.linear(states, self.embedding.weight)


def token_positions(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the position of every token, int64 (batch or 1, tokens): real tokens are counted from 0."""
    n_tokens = input_ids.shape[1]
    if attention_mask is None:
        return torch.arange(n_tokens, device=input_ids.device).unsqueeze(0)
    return (attention_mask.long().cumsum(1) - 1).clamp_min(0)[:, -n_tokens:]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return attention of queries (batch, heads, tokens, head width) to keys; without a mask, to no later key.

    On a CPU the products are written out where gradients are wanted: the gradient of torch's fused attention is
    several times slower there for sequences of some hundred tokens.
    """
    causal = mask is None and query.shape[2] > 1
    if query.device.type != "cpu" or not torch.is_grad_enabled():
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
    if causal:
        mask = _causal(query.shape[2], key.shape[2] - query.shape[2])
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weighted: Tensor = scores.softmax(dim=-1).to(value.dtype) @ value
    return weighted


def attention_pattern(attention_mask: Tensor | None, n_tokens: int, before: int) -> Tensor | None:
    """Return which keys each query may read, bool (batch, 1, n_tokens, before + n_tokens); None: the earlier ones.

    Padding on the right needs no pattern: no real token comes after it. A padding query reads itself, because a query
    with nothing to read has no value.
    """
    if not before and (attention_mask is None or bool(attention_mask[:, 0].all())):
        return None
    if attention_mask is None:
        return None if n_tokens == 1 else _causal(n_tokens, before)
    real = attention_mask.bool()[:, None, None, :]
    itself = torch.eye(n_tokens, before + n_tokens, dtype=torch.bool, device=real.device).roll(before, dims=1)
    return (_causal(n_tokens, before).to(real.device) & real) | itself


def _causal(n_tokens: int, before: int) -> Tensor:
    return torch.ones(n_tokens, before + n_tokens, dtype=torch.bool).tril(before)
