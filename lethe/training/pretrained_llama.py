"""Weights of a Llama-like network from a safetensors file, in the forms that such files have."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from lethe.data.text_errors import InvalidLanguageModel
from lethe.networks.llama import Llama, LlamaShape

_SHAPE_KEYS = {
    "vocabulary_size": "vocab",
    "width": "dim",
    "layers": "layers",
    "heads": "heads",
    "hidden_width": "hidden",
    "context": "context",
}


def load_llama(path: Path) -> Llama:
    """Return the network of a file, in float32.

    The file states its sizes as metadata (vocab, dim, layers, heads, hidden, context). Its tensors are named as the
    network's parameters, or in the short form `e`, `b.<i>.{n1,qkv,o,n2,w13,w2}`, `n` of llama2.c's networks, whose
    heads turn neighbouring dimensions together and are reordered here.
    Raises InvalidLanguageModel if the file cannot be read or does not fit its own sizes.
    """
    metadata, tensors = _read_file(path)
    network = Llama(_shape(metadata, path))
    found = _long_names(tensors, heads=network.shape.heads) if "e.weight" in tensors else dict(tensors)
    _fill(network, found, file_name=path.name)
    return network


def _read_file(path: Path) -> tuple[Mapping[str, str], dict[str, Tensor]]:
    """Return a file's metadata and tensors. Raises InvalidLanguageModel if it cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InvalidLanguageModel(f"{path.name} cannot be read as safetensors: {error}") from error


def _fill(network: nn.Module, found: Mapping[str, Tensor], *, file_name: str) -> None:
    """Give the network these weights, in float32. Raises InvalidLanguageModel naming the first that does not fit."""
    wanted = network.state_dict()
    different = sorted(name for name in wanted.keys() | found.keys() if _form(wanted, name) != _form(found, name))
    if different:
        name = different[0]
        raise InvalidLanguageModel(
            f"{file_name} does not fit the sizes it states: {name} has shape {_form(found, name)} in the file and "
            f"{_form(wanted, name)} in a network of these sizes ({len(different)} tensors differ)"
        )
    network.load_state_dict({name: tensor.float() for name, tensor in found.items()})


def _form(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


def _shape(metadata: Mapping[str, str], path: Path) -> LlamaShape:
    missing = [key for key in _SHAPE_KEYS.values() if not metadata.get(key, "").isdecimal()]
    if missing:
        raise InvalidLanguageModel(f"{path.name} states no whole number for {', '.join(missing)} in its metadata")
    return LlamaShape(**{name: int(metadata[key]) for name, key in _SHAPE_KEYS.items()})


_LONG_NAMES = {
    "n1.w": "attention_norm.weight",
    "qkv.weight": "query_key_value.weight",
    "o.weight": "attention_output.weight",
    "n2.w": "feed_forward_norm.weight",
    "w13.weight": "gate_and_up.weight",
    "w2.weight": "down.weight",
    "e.weight": "embedding.weight",
    "n.w": "norm.weight",
}


def _long_names(tensors: Mapping[str, Tensor], *, heads: int) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in tensors.items():
        prefix, _, rest = name.removeprefix("b.").partition(".") if name.startswith("b.") else ("", "", name)
        long_name = (f"blocks.{prefix}." if prefix else "") + _LONG_NAMES.get(rest, rest)
        renamed[long_name] = _halves(tensor, heads) if rest == "qkv.weight" else tensor
    return renamed


def _halves(query_key_value: Tensor, heads: int) -> Tensor:
    """Return the fused matrix with the dimensions of query and key heads ordered even first, then odd."""
    width = query_key_value.shape[1]
    parts = query_key_value.reshape(3, heads, width // heads // 2, 2, width)
    turned = parts[:2].transpose(2, 3).reshape(2 * width, width)
    return torch.cat([turned, parts[2].reshape(width, width)])
