"""The one definition of every network: training, sandbox and evaluation all build from network.json here.

An installed package adds a builder by the entry point `lethe.networks`; the hosts of sandboxes need the package too.

Imports the standard library, torch and torchvision only (timm when TinyViT is asked for).
"""

import inspect
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from lethe.networks.small_networks import AllCnn, CifarResNet, Mlp, Shape, SmallCnn, SmallVit

Builder = Callable[..., nn.Module]  # (input_shape, n_classes, *, options of the network)
IMAGES = "image-classification"
SOURCE = "module"  # the network that is Python text
TRUST_SOURCE = "LETHE_TRUST_NETWORK_SOURCE"  # "1" in the environment: this process may run such a text
MAX_PARAMETER_TENSORS = 100_000
TASK_BUILDERS = {"causal-lm": (".language_models", "build_language_model")}  # of other tasks: module, function


def build(network: Mapping[str, Any]) -> nn.Module:
    """Return the untrained network that `network` (the parsed network.json) describes.

    network: {"name", "options", "input_shape": [C, H, W], "n_classes", ...}; other keys are not read. With a "task"
    other than image classification the keys are those of its own builder. Raises ValueError (or TypeError) naming the
    wrong value and what is allowed; also for Python text where this process may not run it, and for a network of more
    parameters than `limit_parameters` allows.
    """
    with _counted_parameters():
        return _build(network)


def is_source(network: Mapping[str, Any]) -> bool:
    """Return whether building the network runs a Python text that came with it."""
    return network.get("task", IMAGES) == IMAGES and network.get("name") == SOURCE


def limit_parameters(at_most: int | None) -> None:
    """Let `build` refuse larger networks in this process from now on; None takes the limit away."""
    global _parameter_limit  # noqa: PLW0603 - one limit for a process, as its memory is
    _parameter_limit = at_most


@contextmanager
def _counted_parameters() -> Iterator[None]:
    """Raise ValueError at the first parameter beyond the limit, before it is filled: memory that nobody wrote to is
    not yet taken. Parameters of other threads' networks are not counted."""
    at_most, thread = _parameter_limit, threading.get_ident()
    if at_most is None:
        yield
        return
    total = tensors = 0

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        nonlocal total, tensors
        if parameter is None or threading.get_ident() != thread:
            return
        total, tensors = total + parameter.numel(), tensors + 1
        if total > at_most or tensors > MAX_PARAMETER_TENSORS:
            raise ValueError(
                f"the network has more than {total - 1:,} parameters in {tensors} tensors; allowed here are "
                f"{at_most:,} parameters in {MAX_PARAMETER_TENSORS:,} tensors"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


_parameter_limit: int | None = None


def _build(network: Mapping[str, Any]) -> nn.Module:
    task = network.get("task", IMAGES)
    if task in TASK_BUILDERS:
        module, function = TASK_BUILDERS[task]
        built: nn.Module = getattr(import_module(module, __package__), function)(network)
        return built
    if task != IMAGES:
        raise ValueError(f"unknown task {task!r}: allowed are {IMAGES}, {', '.join(TASK_BUILDERS)}")
    name = network["name"]
    shape = _shape(network["input_shape"])
    n_classes = int(network["n_classes"])
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2, was {n_classes}")
    options = dict(network.get("options") or {})
    builder = BUILDERS.get(name) or _installed(name)
    if builder is not None:
        _check_options(name, builder, options)
        return builder(shape, n_classes, **options)
    return _torchvision(name, shape, n_classes, **options)


def to_inputs(images: Tensor, network: Mapping[str, Any]) -> Tensor:
    """Return `images` (uint8 [n, C, H, W]) as the network's float32 inputs: images * input_scale + input_shift.

    Scale and shift are a number or one number per channel.
    """
    scale, shift = network.get("input_scale", 1.0), network.get("input_shift", 0.0)
    inputs = images.to(torch.float32, copy=True)
    if scale == 1.0 and shift == 0.0:
        return inputs
    return inputs.mul_(_per_channel(inputs, scale)).add_(_per_channel(inputs, shift))


def _per_channel(inputs: Tensor, value: float | list[float]) -> Tensor | float:
    if isinstance(value, int | float):
        return float(value)
    return inputs.new_tensor(value).view(-1, 1, 1)


def _cifar_resnet(depth: int) -> Builder:
    def builder(input_shape: Shape, n_classes: int) -> nn.Module:
        return CifarResNet(input_shape, n_classes, depth=depth)

    return builder


def _tiny_vit(input_shape: Shape, n_classes: int, *, model: str = "tiny_vit_11m_224") -> nn.Module:
    """TinyViT (11 M parameters) from timm, without weights. Images need sides that are multiples of 32."""
    channels, height, width = input_shape
    if not re.fullmatch(r"tiny_vit_\w+", model):  # timm would also take addresses, and folders of this host
        raise ValueError(f"model must be the name of one of timm's TinyViT networks, was {model[:100]!r}")
    if height != width or height % 32:
        raise ValueError(f"tiny_vit needs square images with sides of 32, 64, ... pixels, was {height}x{width}")
    try:
        import timm  # noqa: PLC0415 - only competitions that use it need it
    except ImportError as error:
        raise ValueError("tiny_vit needs timm: install lethe-unlearning[networks]") from error
    net: nn.Module = timm.create_model(model, pretrained=False, num_classes=n_classes, in_chans=channels)
    return net


def _module(
    input_shape: Shape, n_classes: int, *, source: object = None, function: str = "build", **options: Any
) -> nn.Module:
    """The organiser's own network: `source` is Python text defining `function(input_shape, n_classes, **options)`.

    The text is run unchanged, with all that this process may do: in a worker inside a sandbox only.
    """
    if not isinstance(source, str):
        given = "it is missing" if source is None else f"it is a value of type {type(source).__name__}"
        raise ValueError(  # noqa: TRY004 - as for every wrong value of a network
            f"network {SOURCE!r} needs `source`: Python text that defines {function}(input_shape, n_classes); {given}"
        )
    if os.environ.get(TRUST_SOURCE) != "1":
        raise ValueError(
            f"this network is Python text, which would run here with your rights: read it in network.json or the "
            f"competition file, then set {TRUST_SOURCE}=1 to allow it"
        )
    namespace: dict[str, Any] = {"__name__": "organiser_network"}
    try:
        code = compile(source, "<network source>", "exec")
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL
        raise ValueError(f"the network's `source` is not Python: {error}") from error
    exec(code, namespace)  # noqa: S102 - the organiser's, by design
    make = namespace.get(function)
    if make is None:
        raise ValueError(f"the network's source defines no function {function!r}")
    net = make(input_shape, n_classes, **options)
    if not isinstance(net, nn.Module):
        raise TypeError(f"{function!r} must return a torch.nn.Module, returned {type(net).__name__}")
    return net


def _torchvision(name: str, shape: Shape, n_classes: int, *, stem: str = "imagenet", **options: Any) -> nn.Module:
    """A torchvision classifier without weights. `stem="small"` keeps the resolution of a ResNet's first layer."""
    from torchvision import models  # noqa: PLC0415 - half a second that an mlp need not pay

    if name not in models.list_models(module=models):
        raise ValueError(f"unknown network {name!r}: allowed are {', '.join(BUILDERS)} and torchvision's classifiers")
    if name.startswith("vit_") and "image_size" not in options:
        options["image_size"] = shape[1]
    net: nn.Module = models.get_model(name, weights=None, num_classes=n_classes, **options)
    if stem == "small":
        if not name.startswith(("resnet", "resnext", "wide_resnet")):
            raise ValueError(f"stem 'small' is for ResNets, not {name!r}")
        net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        net.maxpool = nn.Identity()
    elif stem != "imagenet":
        raise ValueError(f"stem must be 'imagenet' or 'small', was {stem!r}")
    if shape[0] != 3:
        _change_input_channels(net, shape[0])
    return net


def _change_input_channels(net: nn.Module, channels: int) -> None:
    """Replace the first convolution by one that takes `channels` planes, drawn again."""
    for path, module in net.named_modules():
        if isinstance(module, nn.Conv2d):
            parent, _, leaf = path.rpartition(".")
            convolution = nn.Conv2d(
                channels,
                module.out_channels,
                module.kernel_size,  # type: ignore[arg-type]  # typed as tuple[int, ...], always two
                stride=module.stride,  # type: ignore[arg-type]
                padding=module.padding,  # type: ignore[arg-type]
                bias=module.bias is not None,
            )
            setattr(net.get_submodule(parent), leaf, convolution)
            return
    raise ValueError("the network has no convolution whose input channels could be changed")


def _installed(name: str) -> Builder | None:
    """Return the builder of this name that an installed package has, or None."""
    points = entry_points(group="lethe.networks", name=name)
    return next((point.load() for point in points), None)


def _shape(value: Any) -> Shape:
    shape = tuple(int(size) for size in value)
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"input_shape must be [channels, height, width], all positive, was {list(value)}")
    return shape[0], shape[1], shape[2]


def _check_options(name: str, builder: Callable[..., nn.Module], options: dict[str, Any]) -> None:
    parameters = inspect.signature(builder).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    allowed = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ValueError(f"network {name!r} has no option {unknown[0]!r}: allowed are {', '.join(allowed) or 'none'}")


BUILDERS: dict[str, Builder] = {
    "mlp": Mlp,
    "small_cnn": SmallCnn,
    "resnet20": _cifar_resnet(20),
    "resnet56": _cifar_resnet(56),
    "resnet110": _cifar_resnet(110),
    "all_cnn": AllCnn,
    "vit": SmallVit,
    "tiny_vit": _tiny_vit,
    SOURCE: _module,
}
