"""A model that a notebook saved, as the bytes of a frame."""

import torch
from torch import Tensor

from lethe.runtime.data_loaders import TORCH_DTYPES
from lethe.runtime.entry import RunFault
from lethe.runtime.weights_layout import WeightsLayout
from sandbox.guest.notebook.torch_files import StateDict

Casts = frozenset[tuple[torch.dtype, torch.dtype]]


def model_pieces(state: StateDict, layout: WeightsLayout) -> tuple[list[memoryview], Casts]:
    """Return the model's bytes in the frame's order, cast to the original's types, and what was cast to what.

    Raises RunFault if its names or shapes are not the original's, NotTorchFile if a tensor is not whole.
    """
    pieces, cast = [], set()
    for slot in layout.tensors:
        ref = state.refs.get(slot.name)
        if ref is None:
            raise RunFault("wrong-weights", detail={"kind": "missing", "tensor": slot.name})
        if ref.shape != slot.shape:
            raise RunFault("wrong-weights", detail={"kind": "shape", "tensor": slot.name})
        wanted = TORCH_DTYPES[slot.dtype]
        if ref.dtype != wanted:
            cast.add((ref.dtype, wanted))
        pieces.append(_as_bytes(state.tensor(slot.name).to(wanted)))
    if len(state.refs) != len(layout.tensors):
        raise RunFault("wrong-weights", detail={"kind": "extra"})
    return pieces, frozenset(cast)


def cast_in_words(cast: Casts) -> str:
    """Return from which types to which a model was cast."""
    words = ", ".join(f"{before} to {after}" for before, after in sorted(cast, key=str))
    return f"cast from {words}".replace("torch.", "")


def _as_bytes(tensor: Tensor) -> memoryview:
    flat = tensor.contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")
