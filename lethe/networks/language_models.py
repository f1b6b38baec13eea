"""Language models by the name that a competition file uses: small Llama- and GPT-2-like ones, folders.

`net(input_ids, attention_mask)` returns logits. Imports the standard library and torch only; transformers where a
network of that library is built, from a configuration: `net.model` is the library's own model.

The others are plain torch with published names and numbers, as in Hugging Face's implementations. Llama (Touvron et
al. 2023, 2302.13971, section 2.2): rotary positions, where dimension i of a head turns together with i + half, RMS
norms, a gated feed-forward part, no biases. GPT-2 (Radford et al. 2019): learnt positions, layer norms, the tanh form
of GELU, biases; published files hold its matrices transposed ("Conv1D"), here they are linear layers, so that whatever
looks for those finds them. Their output layer is the transposed embedding: one tensor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.networks.decoder import CausalNetwork, Decoder, LayerCache, attend, token_positions

NAME = "transformers"
MODEL_TYPES = (  # architectures whose code is the library's own, and which the tests build
    "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "llama", "mistral", "olmo", "olmo2", "phi", "phi3", "qwen2",
    "qwen3", "smollm3",
)  # fmt: skip
NOT_TAKEN = ("auto_map", "quantization_config", "dtype", "torch_dtype", "attn_implementation", "experts_implementation")


class TransformersNetwork(CausalNetwork):
    """`net(input_ids, attention_mask)` returns logits, as every language model's network here does.

    Its state_dict holds each tensor once: an output layer that is the embedding is left out, and put back when one is
    loaded.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raises ValueError for a configuration that is none, or of an architecture that is not in MODEL_TYPES."""
        super().__init__()
        self.config = usable_config(config)
        self.model = _model(self.config)
        self.context = context_of(config)
        seen: dict[int, str] = {}
        self._tied = {}  # a name that is left out, and the one that stands for it
        for name, tensor in super().state_dict(keep_vars=True).items():
            kept = seen.setdefault(id(tensor), name)
            if kept != name:
                self._tied[name] = kept

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits, shape (batch, tokens, vocabulary); position t predicts token t + 1.

        input_ids: int64, shape (batch, tokens). attention_mask: 1 for real tokens, 0 for padding on either side;
        without it all are real.
        """
        positions = token_positions(input_ids, attention_mask).expand_as(input_ids)
        found: Tensor = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=positions, use_cache=False
        ).logits
        return found

    def new_cache(self, *, rows: int, capacity: int) -> "TransformersCache":
        return TransformersCache(self.model.config)

    def next_logits(self, input_ids: Tensor, attention_mask: Tensor, cache: Any) -> Tensor:
        positions = token_positions(input_ids, attention_mask)
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=positions,
            past_key_values=cache.held,
            use_cache=True,
            logits_to_keep=1,
        )
        found: Tensor = output.logits[:, -1]
        return found

    def state_dict(self, *arguments: Any, prefix: str = "", **settings: Any) -> Any:
        """Return the state without the names of tensors that another name already holds."""
        found = super().state_dict(*arguments, prefix=prefix, **settings)
        for name in self._tied:
            found.pop(prefix + name, None)
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **settings: Any) -> Any:
        """Load a state with or without the names that `state_dict` leaves out."""
        absent = {name: kept for name, kept in self._tied.items() if name not in state_dict and kept in state_dict}
        whole = {**state_dict, **{name: state_dict[kept] for name, kept in absent.items()}}
        return super().load_state_dict(whole, *arguments, **settings)


class TransformersCache:
    """Keys and values of the tokens that a network has read, held as the library holds them."""

    def __init__(self, config: Any) -> None:
        from transformers import DynamicCache  # noqa: PLC0415 - seconds that other networks need not pay

        self.held = DynamicCache(config=config)

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these (int64, in this order)."""
        self.held.batch_select_indices(rows)


def context_of(config: Mapping[str, Any]) -> int:
    """Return the longest sequence in tokens. Raises ValueError for a configuration that states none."""
    stated = config.get("max_position_embeddings", config.get("n_positions"))
    if type(stated) is not int or stated < 1:
        raise ValueError(f"the configuration states no whole number as max_position_embeddings: {stated!r:.80}")
    return stated


def width_of(config: Mapping[str, Any]) -> int:
    """Return the width of the states between blocks. Raises ValueError for a configuration that states none."""
    stated = config.get("hidden_size", config.get("n_embd"))
    if type(stated) is not int or stated < 1:
        raise ValueError(f"the configuration states no whole number as hidden_size: {stated!r:.80}")
    return stated


def usable_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a folder's config.json describes the network itself. Raises ValueError if it cannot be built."""
    if config.get("auto_map"):
        raise ValueError("config.json asks for code of its own (auto_map), which is never run")
    if config.get("quantization_config"):
        raise ValueError("config.json describes quantised weights; save the network in float32, bfloat16 or float16")
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise ValueError(f"the architecture {kind!r:.80} is not built here; allowed are {', '.join(MODEL_TYPES)}")
    return {name: value for name, value in config.items() if name not in NOT_TAKEN and not name.startswith("_")}


def _model(config: dict[str, Any]) -> nn.Module:
    try:
        from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415
    except ImportError as error:
        raise ValueError("this network needs the library transformers: install lethe-unlearning[hf]") from error
    try:
        described = AutoConfig.for_model(**config)
        # Capped attention logits (Gemma 2) are left out by torch's fused attention.
        attention = "eager" if getattr(described, "attn_logit_softcapping", None) else "sdpa"
        found: nn.Module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            described, trust_remote_code=False, attn_implementation=attention, dtype=torch.float32
        )
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise ValueError(f"the configuration cannot be built as {config['model_type']}: {error}") from error
    return found


ROTARY_BASE = 10000.0


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


@dataclass(frozen=True)
class LlamaShape(Gpt2Shape):
    """The same sizes. width: a multiple of 2 x heads."""

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
        self.blocks = nn.ModuleList(LlamaBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.register_buffer("rotation", _rotation(shape), persistent=False)
        self.apply(_initialise_llama)

    def _start(self, input_ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(input_ids), self.rotation[positions].unsqueeze(1)


class Block(nn.Module):
    """One layer: attention, then a feed-forward part, each added to what it read."""

    def __init__(self, shape: Gpt2Shape, norm: Callable[..., nn.Module], *, bias: bool) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = norm(shape.width, eps=NORM_EPSILON)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=bias)
        self.attention_output = nn.Linear(shape.width, shape.width, bias=bias)
        self.feed_forward_norm = norm(shape.width, eps=NORM_EPSILON)

    def after_attention(
        self, states: Tensor, mask: Tensor | None, cache: LayerCache | None, rotation: Tensor | None = None
    ) -> Tensor:
        """Return the states after the first part, shape as given."""
        batch, n_tokens, width = states.shape
        parts = self.query_key_value(self.attention_norm(states)).view(batch, n_tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        if cache is not None:
            key, value = cache.extend(key, value)
        attended = attend(query, key, value, mask).transpose(1, 2).reshape(batch, n_tokens, width)
        result: Tensor = states + self.attention_output(attended)
        return result


class LlamaBlock(Block):
    """The feed-forward part is gated."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__(shape, nn.RMSNorm, bias=False)
        self.gate_and_up = nn.Linear(shape.width, 2 * shape.hidden_width, bias=False)
        self.down = nn.Linear(shape.hidden_width, shape.width, bias=False)

    def forward(self, states: Tensor, rotation: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        states = self.after_attention(states, mask, cache, rotation)
        gate, up = self.gate_and_up(self.feed_forward_norm(states)).chunk(2, dim=-1)
        result: Tensor = states + self.down(functional.silu(gate) * up)
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


class Gpt2Block(Block):
    """The feed-forward part has one hidden layer."""

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__(shape, nn.LayerNorm, bias=True)
        self.up = nn.Linear(shape.width, shape.hidden_width)
        self.down = nn.Linear(shape.hidden_width, shape.width)

    def forward(self, states: Tensor, _: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        states = self.after_attention(states, mask, cache)
        hidden = functional.gelu(self.up(self.feed_forward_norm(states)), approximate="tanh")
        result: Tensor = states + self.down(hidden)
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
