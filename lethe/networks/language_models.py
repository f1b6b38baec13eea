"""Language models by the name that a competition file uses: small Llama- and GPT-2-like ones, folders.

`net(input_ids, attention_mask)` returns logits. Imports the standard library and torch only.

Both are plain torch with published names and numbers, as in Hugging Face's implementations. Llama (Touvron et al. 2023,
2302.13971, section 2.2): rotary positions, where dimension i of a head turns together with i + half, RMS norms, a gated
feed-forward part, no biases. GPT-2 (Radford et al. 2019): learnt positions, layer norms, the tanh form of GELU, biases;
published files hold its matrices transposed ("Conv1D"), here they are linear layers, so that whatever looks for those
finds them. The output layer of both is the transposed embedding: one tensor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.networks.decoder import Decoder, LayerCache, attend
from lethe.networks.transformers_network import NAME, TransformersNetwork

ROTARY_BASE = 10000.0


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
        self.apply(_initialise_llama)

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


def _initialise_llama(module: nn.Module) -> None:
    """Draw weights that keep the size of what they read, whatever the width."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)


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


SIZES = ("width", "layers", "heads", "hidden_width", "context")


def build_language_model(network: Mapping[str, Any]) -> nn.Module:
    """Return the untrained network of network.json: {"name", "vocabulary_size", "options": its sizes}.

    One of the library transformers has the options "config", its config.json, and "context".
    Raises ValueError naming the wrong value and what is allowed.
    """
    name, options = network["name"], dict(network.get("options") or {})
    if name == NAME:
        if not isinstance(options.get("config"), Mapping):
            raise ValueError(f"network {name!r} needs the option 'config', an object as config.json holds it")
        return TransformersNetwork(options["config"])
    if name not in SHAPES:
        raise ValueError(f"unknown language model {name!r}: allowed are {', '.join((*SHAPES, NAME))}")
    unknown = sorted(set(options) - set(SIZES))
    missing = [size for size in SIZES if size not in options]
    if unknown or missing:
        what = f"has no option {unknown[0]!r}" if unknown else f"needs the option {missing[0]!r}"
        raise ValueError(f"network {name!r} {what}: its sizes are {', '.join(SIZES)}")
    wrong = [size for size in SIZES if type(options[size]) is not int or options[size] < 1]
    if wrong:
        raise ValueError(f"{wrong[0]} of network {name!r} must be a whole number of at least 1")
    make, shape = SHAPES[name]
    built: nn.Module = make(shape(vocabulary_size=int(network["vocabulary_size"]), **options))
    return built


SHAPES: dict[str, tuple[Any, Any]] = {"llama": (Llama, LlamaShape), "gpt2": (Gpt2, Gpt2Shape)}
