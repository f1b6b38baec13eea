"""A small Llama-like language model in plain torch, with nothing to install beside it.

Rotary positions, RMS norms before each half of a block, a gated feed-forward part, no biases, and an output layer that
is the transposed embedding: one tensor, so it cannot come apart from the embedding.
Source: Touvron et al. 2023 (2302.13971), section 2.2; rotary positions as in Hugging Face's implementation, where
dimension i of a head turns together with dimension i + half.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.networks.key_value_cache import KeyValueCache, LayerCache

ROTARY_BASE = 10000.0
NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class LlamaShape:
    """Sizes of a network. context: the longest sequence in tokens. width: a multiple of 2 x heads."""

    vocabulary_size: int
    width: int
    layers: int
    heads: int
    hidden_width: int
    context: int

    def __post_init__(self) -> None:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} is no multiple of 2 x heads = {2 * self.heads}")


class Llama(nn.Module):
    """`net(input_ids, attention_mask)` returns logits; position t predicts token t + 1."""

    rotation: Tensor

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary_size, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.register_buffer("rotation", _rotation(shape), persistent=False)
        self.apply(_initialise)

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
        rotation = self.rotation[self._positions(input_ids, attention_mask)].unsqueeze(1)
        mask = attention_pattern(attention_mask, n_tokens, before)
        states = self.embedding(input_ids)
        for i, block in enumerate(self.blocks):
            states = block(states, rotation, mask, cache.layer(i) if cache else None)
        if cache:
            cache.length += n_tokens
        result: Tensor = self.norm(states)
        return result

    def logits(self, states: Tensor) -> Tensor:
        """Return the output layer's logits for hidden states of any leading shape."""
        return functional.linear(states, self.embedding.weight)

    def _positions(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        n_tokens = input_ids.shape[1]
        if attention_mask is None:
            return torch.arange(n_tokens, device=input_ids.device).unsqueeze(0)
        return (attention_mask.long().cumsum(1) - 1).clamp_min(0)[:, -n_tokens:]


class Block(nn.Module):
    """One layer: attention, then a gated feed-forward part, each added to what it read."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_output = nn.Linear(shape.width, shape.width, bias=False)
        self.feed_forward_norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.gate_and_up = nn.Linear(shape.width, 2 * shape.hidden_width, bias=False)
        self.down = nn.Linear(shape.hidden_width, shape.width, bias=False)

    def forward(self, states: Tensor, rotation: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        """Return the states after this layer, shape as given."""
        states = states + self._attend(self.attention_norm(states), rotation, mask, cache)
        gate, up = self.gate_and_up(self.feed_forward_norm(states)).chunk(2, dim=-1)
        result: Tensor = states + self.down(functional.silu(gate) * up)
        return result

    def _attend(self, states: Tensor, rotation: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        batch, n_tokens, width = states.shape
        parts = self.query_key_value(states).view(batch, n_tokens, 3, self.heads, width // self.heads)
        parts = parts.permute(2, 0, 3, 1, 4)
        query, key = rotate(parts[:2], rotation)
        value = parts[2]
        if cache is not None:
            key, value = cache.extend(key, value)
        attended = attend(query, key, value, mask)
        result: Tensor = self.attention_output(attended.transpose(1, 2).reshape(batch, n_tokens, width))
        return result


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


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Return queries or keys turned by their positions. rotation: cosines and sines, (..., tokens, head width)."""
    cosine, sine = rotation.to(heads.dtype).chunk(2, dim=-1)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


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


def _rotation(shape: LlamaShape) -> Tensor:
    half = shape.width // shape.heads // 2
    frequencies = ROTARY_BASE ** -(torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), frequencies)
    return torch.cat([angles.cos(), angles.sin()], dim=-1).float()


def _initialise(module: nn.Module) -> None:
    """Draw weights that keep the size of what they read, whatever the width."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
