"""Weights of a GPT-2-like network from a safetensors file, as Hugging Face publishes them, with its config.json."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lethe.data.text_errors import InvalidLanguageModel
from lethe.networks.gpt2 import NORM_EPSILON, Gpt2, Gpt2Shape
from lethe.training.pretrained_files import fill, read_file

CONFIG = "config.json"
_SIZES = {
    "vocabulary_size": "vocab_size",
    "width": "n_embd",
    "layers": "n_layer",
    "heads": "n_head",
    "hidden_width": "n_inner",
    "context": "n_positions",
}
_FIXED: dict[str, Any] = {  # what this network has no other form of
    "activation_function": "gelu_new",
    "layer_norm_epsilon": NORM_EPSILON,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
    "add_cross_attention": False,
}
_NAMES = {
    "wte": "embedding",
    "wpe": "positions",
    "ln_f": "norm",
    "ln_1": "attention_norm",
    "attn.c_attn": "query_key_value",
    "attn.c_proj": "attention_output",
    "ln_2": "feed_forward_norm",
    "mlp.c_fc": "up",
    "mlp.c_proj": "down",
}
_TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # "Conv1D": (inputs, outputs)
_LEFT_OUT = re.compile(r"h\.\d+\.attn\.(masked_)?bias|lm_head\.weight")  # masks, and the embedding again


def load_gpt2(path: Path) -> Gpt2:
    """Return the network of a file, in float32. `config.json` beside it states its sizes.

    Raises InvalidLanguageModel if either cannot be read, does not fit the other, or asks for what is not built here.
    """
    network = Gpt2(_shape(path.with_name(CONFIG)))
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in read_file(path)[1].items()}
    found = {
        _own_name(name): _matrix(name, tensor) for name, tensor in tensors.items() if not _LEFT_OUT.fullmatch(name)
    }
    fill(network, found, file_name=path.name)
    return network


def _shape(path: Path) -> Gpt2Shape:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidLanguageModel(f"{path.name}, which states the network's sizes, cannot be read: {error}") from error
    for key, only in _FIXED.items():
        if config.get(key, only) != only:
            raise InvalidLanguageModel(f"{path.name}: {key} is {config[key]!r}; only {only!r} is built here")
    if config.get("n_inner") is None and isinstance(config.get("n_embd"), int):
        config["n_inner"] = 4 * config["n_embd"]
    return _checked_shape(config, path)


def _checked_shape(config: Mapping[str, Any], path: Path) -> Gpt2Shape:
    wrong = [key for key in _SIZES.values() if type(config.get(key)) is not int or config[key] < 1]
    if wrong:
        raise InvalidLanguageModel(f"{path.name} states no whole number of at least 1 for {', '.join(wrong)}")
    try:
        return Gpt2Shape(**{name: config[key] for name, key in _SIZES.items()})
    except ValueError as error:
        raise InvalidLanguageModel(f"{path.name}: {error}") from error


def _own_name(name: str) -> str:
    block = re.match(r"h\.(\d+)\.", name)
    rest = name[block.end() :] if block else name
    layer, _, kind = rest.rpartition(".")
    return (f"blocks.{block[1]}." if block else "") + f"{_NAMES.get(layer, layer)}.{kind}"


def _matrix(name: str, tensor: Tensor) -> Tensor:
    return tensor.t() if name.endswith(_TRANSPOSED) else tensor
