"""Pretrained language models from local files, by the name of their network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lethe.data.text_errors import InvalidLanguageModel
from lethe.networks.decoder import Decoder
from lethe.networks.language_models import SIZES
from lethe.networks.transformers_network import NAME, TransformersNetwork
from lethe.training.pretrained_llama import load_llama
from lethe.training.pretrained_transformers import load_transformers

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
