"""A model that a notebook saved, as the bytes of a frame. It is read in the notebook's own process."""

import io
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from lethe.runtime.data_loaders import TORCH_DTYPES
from lethe.runtime.entry import checked_pieces
from lethe.runtime.weights_layout import WeightsLayout

Casts = frozenset[tuple[torch.dtype, torch.dtype]]
_load = torch.load  # before a run changes it for its program


class NotTorchFile(ValueError):
    """The bytes are not a complete file of torch.save, or hold something else than tensors by name."""


class NoTensors(NotTorchFile):
    """A complete file without any tensor: no model, whole or broken."""


def read_state_dict(content: Path | bytes) -> dict[str, Tensor]:
    """Return the named tensors of a torch file. Raises NotTorchFile."""
    try:
        value = _load(
            io.BytesIO(content) if isinstance(content, bytes) else content, map_location="cpu", weights_only=True
        )
    except Exception as error:  # damaged files end in whatever the reader meets first
        raise NotTorchFile(f"not a whole torch file of tensors: {str(error)[:200]}") from error
    if not _has_tensors(value):
        raise NoTensors("it holds no tensors; save net.state_dict()")
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str) and isinstance(item, Tensor) for name, item in value.items()
    ):
        raise NotTorchFile("it holds something else than tensors by name; save net.state_dict()")
    return dict(value)


def model_pieces(state: Mapping[str, Tensor], layout: WeightsLayout) -> tuple[list[memoryview], Casts]:
    """Return the model's bytes in the frame's order, cast to the original's types, and what was cast to what.

    Raises RunFault if it is not like the original.
    """
    wanted = {slot.name: TORCH_DTYPES[slot.dtype] for slot in layout.tensors}
    cast = {name: dtype for name, dtype in wanted.items() if name in state and state[name].dtype != dtype}
    pieces = checked_pieces({**state, **{name: state[name].to(dtype) for name, dtype in cast.items()}}, layout)
    return pieces, frozenset((state[name].dtype, dtype) for name, dtype in cast.items())


def cast_in_words(cast: Casts) -> str:
    """Return from which types to which a model was cast."""
    words = ", ".join(f"{before} to {after}" for before, after in sorted(cast, key=str))
    return f"cast from {words}".replace("torch.", "")


def _has_tensors(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any(map(_has_tensors, value)))
