"""A second device without a GPU: tensors with real values that say they are elsewhere and refuse tensors of the CPU.

The device is torch's `meta`, which every torch knows and which has an autograd engine. A tensor on it holds its values
in a tensor of the CPU, so programs run to their end, with backward passes, and give the CPU's values. What a CUDA
device refuses is refused: an operation with tensors of both devices, unless the other one has no axes, is an index or
is copied; `.numpy()`; a generator of the CPU.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "meta"
COPIES = frozenset({torch.ops.aten._to_copy, torch.ops.aten.copy_})
INDEXED = frozenset({torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_})


class MixedDevices(RuntimeError):
    """An operation got tensors, or a generator, of both devices."""


class DeviceTensor(Tensor):
    """A tensor on the second device. value: its values, on the CPU."""

    value: Tensor
    is_meta = False  # torch loads no state into tensors of `meta`

    @staticmethod
    def __new__(cls, value: Tensor) -> "DeviceTensor":
        made = Tensor._make_wrapper_subclass(
            cls,
            value.size(),
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device=NAME,
        )
        made.value = value
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.value.tolist()

    def __repr__(self) -> str:
        return f"DeviceTensor({self.value!r})"


class SecondDevice(TorchDispatchMode):
    """While it is active, tensors can be made on the second device and moved there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


class ValuesArrive(TorchFunctionMode):
    """torch drops the values of a list for `meta` before they are dispatched; here they are moved there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func in {torch.tensor, torch.as_tensor} and torch.device(given.get("device") or "cpu").type == NAME:
            return func(*args, **{**given, "device": "cpu"}).to(NAME)
        return func(*args, **given)


@contextmanager
def second_device() -> Iterator[str]:
    """Yield the name of the device, which programs take in place of "cuda".

    A tensor with values of its own cannot be divided in inference mode, so that is `no_grad` meanwhile.
    """
    with patch.object(torch, "inference_mode", torch.no_grad), SecondDevice(), ValuesArrive():
        yield NAME


def dispatch(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Return what an operation gives, on the device where a real one would give it. Raises MixedDevices."""
    flat, _ = tree_flatten((args, dict(kwargs)))
    here = [each for each in flat if isinstance(each, DeviceTensor)]
    asked = kwargs.get("device")
    there = torch.device(asked).type == NAME if asked is not None else bool(here)
    refuse_mixed(func, args, flat, there=there)
    known = {id(each.value): each for each in here}
    values = tree_map(lambda each: each.value if isinstance(each, DeviceTensor) else each, (args, dict(kwargs)))
    if asked is not None and there:
        values[1]["device"] = "cpu"
    found = func(*values[0], **values[1])
    first = args[0] if args else None
    if func.overloadpacket is torch.ops.aten.copy_:
        return first
    if not there:
        return found
    return tree_map(lambda each: _wrapped(each, known) if isinstance(each, Tensor) else each, found)


def _wrapped(value: Tensor, known: Mapping[int, DeviceTensor]) -> DeviceTensor:
    """Return a result on the device; of an operation in place, the tensor that was given."""
    return known[id(value)] if id(value) in known else DeviceTensor(value)


def refuse_mixed(func: Any, args: Any, flat: list[Any], *, there: bool) -> None:
    """Raise MixedDevices where a CUDA device would refuse."""
    if there and any(isinstance(each, torch.Generator) for each in flat):
        raise MixedDevices(f"{func}: expected a generator of {NAME!r}, found one of 'cpu'")
    if func.overloadpacket in COPIES:
        return
    tensors = [each for each in flat if isinstance(each, Tensor)]
    here = [each for each in tensors if isinstance(each, DeviceTensor)]
    if func.overloadpacket in INDEXED and isinstance(args[0], DeviceTensor):
        tensors = [args[0], *args[2:3]]  # indices may lie on the CPU
    elsewhere = [each for each in tensors if not isinstance(each, DeviceTensor) and each.dim() > 0]
    if here and elsewhere:
        shape = tuple(elsewhere[0].shape)
        raise MixedDevices(f"{func}: expected all tensors to be on {NAME!r}, found one of shape {shape} on 'cpu'")
    if here and func.overloadpacket.__name__.endswith("_") and not isinstance(args[0], DeviceTensor):
        raise MixedDevices(f"{func}: a tensor on 'cpu' cannot take values of {NAME!r}")
