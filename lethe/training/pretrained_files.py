"""Tensors of a safetensors file, and whether they are those of a network."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from lethe.data.text_errors import InvalidLanguageModel


def read_file(path: Path) -> tuple[Mapping[str, str], dict[str, Tensor]]:
    """Return a file's metadata and tensors. Raises InvalidLanguageModel if it cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InvalidLanguageModel(f"{path.name} cannot be read as safetensors: {error}") from error


def fill(network: nn.Module, found: Mapping[str, Tensor], *, file_name: str) -> None:
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
