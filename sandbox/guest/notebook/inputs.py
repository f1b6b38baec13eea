"""Lets a notebook feed images as they are, 0 to 255, to a network that was trained on scaled ones.

Notebooks of this competition's kind read images and hand them to torchvision's network unscaled. Where the split's
network expects `images * scale + shift`, every network of that class which the notebook builds does it by itself, in
front of its first layer; names and shapes of its weights stay what they are.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class ScaleInputs:
    """A hook before a layer: its input, scaled. One number for all channels, or one for each."""

    def __init__(self, scale: Any, shift: Any) -> None:
        self.scale = scale
        self.shift = shift

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        first = inputs[0]
        if not isinstance(first, Tensor):
            return inputs
        return (first * _per_channel(first, self.scale) + _per_channel(first, self.shift), *inputs[1:])


def scale_in(network: nn.Module, description: Mapping[str, Any]) -> bool:
    """Let networks of this class scale their inputs from now on. Return False where a notebook must do it itself.

    description: the parsed network.json. Only torchvision's classes are known to notebooks.
    """
    scale, shift = description.get("input_scale", 1.0), description.get("input_shift", 0.0)
    if _is_plain(scale, 1.0) and _is_plain(shift, 0.0):
        return True
    kind = type(network)
    if not kind.__module__.startswith("torchvision."):
        return False
    build = kind.__init__

    def building(self: nn.Module, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        layer = next((m for m in self.modules() if isinstance(m, nn.Conv2d)), None)
        if layer is not None:
            layer.register_forward_pre_hook(ScaleInputs(scale, shift))

    kind.__init__ = building  # type: ignore[method-assign]
    return True


def _is_plain(value: Any, neutral: float) -> bool:
    return all(number == neutral for number in (value if isinstance(value, list) else [value]))


def _per_channel(inputs: Tensor, value: Any) -> Any:
    return inputs.new_tensor(value).view(-1, 1, 1) if isinstance(value, list) else value
