"""A GPT-2-like language model in plain torch, with nothing to install beside it.

Learnt positions, layer norms before each half of a block, a feed-forward part with the tanh form of GELU, biases, and
an output layer that is the transposed embedding. Published files hold the transposed matrices of its layers ("Conv1D");
here these are linear layers, so that whatever looks for those finds them.
Source: Radford et al. 2019; names and numbers as in Hugging Face's implementation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.networks.decoder import Decoder, attend
from lethe.networks.key_value_cache import LayerCache

NORM_EPSILON = 1e-5
WEIGHT_SCALE = 0.02


@dataclass(frozen=True)
class Gpt2Shape:
    """Sizes of a network. context: the longest sequence in tokens. width: a multiple of heads."""

    vocabulary_size: int
    width: int
    layers: int
    heads: int
    hidden_width: int
    context: int

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads = {self.heads}")


class Gpt2(Decoder):
    """A GPT-2-like network of a shape."""

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary_size, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Gpt2Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.apply(_initialise)

    def _start(self, input_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(input_ids) + self.positions(positions), positions


class Gpt2Block(nn.Module):
    """One layer: attention, then a feed-forward part, each added to what it read."""

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attention_output = nn.Linear(shape.width, shape.width)
        self.feed_forward_norm = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.up = nn.Linear(shape.width, shape.hidden_width)
        self.down = nn.Linear(shape.hidden_width, shape.width)

    def forward(self, states: Tensor, _: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        """Return the states after this layer, shape as given."""
        states = states + self._attend(self.attention_norm(states), mask, cache)
        hidden = functional.gelu(self.up(self.feed_forward_norm(states)), approximate="tanh")
        result: Tensor = states + self.down(hidden)
        return result

    def _attend(self, states: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        batch, n_tokens, width = states.shape
        parts = self.query_key_value(states).view(batch, n_tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            key, value = cache.extend(key, value)
        attended = attend(query, key, value, mask)
        result: Tensor = self.attention_output(attended.transpose(1, 2).reshape(batch, n_tokens, width))
        return result


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=WEIGHT_SCALE)
    if isinstance(module, nn.Linear):
        torch.nn.init.zeros_(module.bias)
