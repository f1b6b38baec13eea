"""Weights of a pretraining: of own decoders, of Llama files, of transformers folders; vocabularies that were cut."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from lethe.data.errors import InvalidLanguageModel
from lethe.data.question_answers import cut_rows
from lethe.networks.builders import build
from lethe.networks.decoder import Decoder
from lethe.networks.language_models import NAME, SIZES, Llama, LlamaShape, TransformersNetwork, context_of

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


CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"


def load_transformers(folder: Path) -> TransformersNetwork:
    """Return the network of a folder, in float32, with the weights of a LoRA adapter merged.

    The base model of an adapter lies beside the folder. Raises InvalidLanguageModel if the folder cannot be read, holds
    pickles, needs code of its own, is of an architecture that is not built here, or of more parameters than this
    process builds, before any weight is read.
    """
    try:
        from lethe.huggingface.model_folder import load_language_model  # noqa: PLC0415
        from lethe.huggingface.results import InvalidModelFolder  # noqa: PLC0415 - the extra `hf` may be absent
    except ImportError as error:
        raise InvalidLanguageModel(
            f"folders are read by transformers: install lethe-unlearning[hf] ({error})"
        ) from error
    try:
        config = _json(_base(folder) / CONFIG)
        with torch.device("meta"):  # counts the parameters, and takes no memory
            build({"task": "causal-lm", "name": NAME, "options": {"config": config, "context": context_of(config)}})
        loaded = load_language_model(folder, dtype="float32").network
        network = TransformersNetwork(config)
        network.load_state_dict({f"model.{name}": tensor for name, tensor in loaded.state_dict().items()})
    except (InvalidModelFolder, OSError, ValueError, RuntimeError) as error:
        said = str(error).replace(str(folder.parent), "")  # where the host keeps it is not the organiser's business
        raise InvalidLanguageModel(f"{folder.name}: {said}") from error
    return network


def _base(folder: Path) -> Path:
    """Return the folder itself, or that of its base model. Raises ValueError for a base that lies elsewhere."""
    if not (folder / ADAPTER_CONFIG).is_file():
        return folder
    named = Path(str(_json(folder / ADAPTER_CONFIG).get("base_model_name_or_path")))
    if (folder / named).resolve().parent != folder.resolve().parent:
        raise ValueError(f"{ADAPTER_CONFIG} names the base model {str(named)!r}; allowed is ../FOLDER, beside it")
    return folder / named


def _json(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text("utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds {type(found).__name__}; allowed is an object")  # noqa: TRY004
    return found


Pretrained = Decoder | TransformersNetwork
LOADERS: dict[str, Callable[[Path], Pretrained]] = {"llama": load_llama, NAME: load_transformers}


def load_pretrained(network_name: str, path: Path) -> Pretrained:
    """Return the network of a file or folder. Raises InvalidLanguageModel for one that cannot be read or does not fit.

    Weights are float32, whatever the file holds.
    """
    if network_name not in LOADERS:
        raise InvalidLanguageModel(
            f"network {network_name!r} starts from no stored weights: allowed are {' and '.join(LOADERS)}; "
            f"a GPT-2 is given as a folder, with name = {NAME!r}"
        )
    return LOADERS[network_name](path)


def options_of(network: Pretrained) -> dict[str, Any]:
    """Return the options that build an untrained network of the same form."""
    if isinstance(network, TransformersNetwork):
        return {"config": network.config, "context": network.context}
    return {size: getattr(network.shape, size) for size in SIZES}


def vocabulary_size(network: Pretrained) -> int:
    """Return the number of tokens for which the network has a row."""
    if isinstance(network, TransformersNetwork):
        return int(network.config["vocab_size"])
    return int(network.shape.vocabulary_size)


def with_vocabulary(network: Decoder, kept_ids: Sequence[int]) -> Decoder:
    """Return a network whose token i is token kept_ids[i] of the given one; all other weights are equal.

    Raises InvalidTokenizer if a token is outside the network's vocabulary.
    """
    weights = network.state_dict()
    smaller = type(network)(replace(network.shape, vocabulary_size=len(kept_ids)))
    with torch.no_grad():
        smaller.load_state_dict({**weights, "embedding.weight": cut_rows(weights["embedding.weight"], kept_ids)})
    return smaller.to(weights["embedding.weight"].device)
