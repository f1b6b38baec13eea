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

from lethe.networks.decoder import Decoder, attend
from lethe.networks.key_value_cache import LayerCache

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
            raise ValueError(f"width {self.width} is not a multiple of 2 x heads = {2 * self.heads}")


class Llama(Decoder):
    """A Llama-like network of a shape."""

    rotation: Tensor

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary_size, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.register_buffer("rotation", _rotation(shape), persistent=False)
        self.apply(_initialise)

    def _start(self, input_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(input_ids), self.rotation[positions].unsqueeze(1)


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


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Return queries or keys turned by their positions. rotation: cosines and sines, (..., tokens, head width)."""
    cosine, sine = rotation.to(heads.dtype).chunk(2, dim=-1)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def _rotation(shape: LlamaShape) -> Tensor:
    half = shape.width // shape.heads // 2
    frequencies = ROTARY_BASE ** -(torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), frequencies)
    return torch.cat([angles.cos(), angles.sin()], dim=-1).float()


def _initialise(module: nn.Module) -> None:
    """Draw weights that keep the size of what they read, whatever the width."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
