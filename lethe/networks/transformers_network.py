"""Language models of the library `transformers`, built from a configuration; `net.model` is the library's own model.

Imports the standard library and torch, and transformers when such a network is built.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lethe.networks.decoder import CausalNetwork, token_positions

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
