"""Pretrained language models from local files, by the name of their network."""

from collections.abc import Callable
from pathlib import Path

from lethe.data.text_errors import InvalidLanguageModel
from lethe.networks.decoder import Decoder
from lethe.training.pretrained_gpt2 import load_gpt2
from lethe.training.pretrained_llama import load_llama

LOADERS: dict[str, Callable[[Path], Decoder]] = {"llama": load_llama, "gpt2": load_gpt2}


def load_pretrained(network_name: str, path: Path) -> Decoder:
    """Return the network of a file. Raises InvalidLanguageModel for one that cannot be read or does not fit."""
    if network_name not in LOADERS:
        raise InvalidLanguageModel(
            f"no file can be read for network {network_name!r}: allowed are {', '.join(LOADERS)}"
        )
    return LOADERS[network_name](path)
