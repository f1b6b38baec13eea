"""What a notebook finds below /kaggle/input and what the hosts' starting kit downloads, from the split in memory.

The files are there as well; reading a picture of them decodes nothing.
"""

import functools
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.io import ImageReadMode

from lethe.runtime.data_loaders import GuestData
from lethe.runtime.notebook_shell import report
from sandbox.guest.notebook.model_files import target_path

INPUT = Path("/kaggle/input")
SUFFIX = ".png"
READ_MODES = {1: (ImageReadMode.UNCHANGED, ImageReadMode.GRAY), 3: (ImageReadMode.UNCHANGED, ImageReadMode.RGB)}
WEIGHTS = "weights_resnet18_cifar10.pth"
INDICES = ("forget_idx.npy", "retain_idx.npy")
DATASET = "CIFAR10"
SHAPE, MAX_CLASSES = (3, 32, 32), 10


def original_files() -> list[Path]:
    """Return the file of the original model's weights."""
    return list(INPUT.glob("*/original_model.pth"))


def serve_original(state: Mapping[str, Tensor]) -> None:
    """Let torch.load give these weights in place of the original's, for a run that starts from another model."""
    files, load = original_files(), torch.load

    def loading(f: object, *arguments: object, **options: object) -> object:
        if target_path(f) not in files:
            return load(f, *arguments, **options)  # type: ignore[arg-type]
        place = options.get("map_location", next(iter(arguments), None))
        to = place if isinstance(place, str | torch.device) else "cpu"
        return {name: tensor.clone().to(to) for name, tensor in state.items()}

    torch.load = loading


class Pictures:
    """The pictures below /kaggle/input, by path: torchvision.io and PIL return the split's own tensors for them."""

    def __init__(self, data: GuestData) -> None:
        self._sets = [part for part in (data.retain, data.forget, data.validation) if hasattr(part, "stored")]
        self._folders = tuple(f"{folder}/images/" for folder in INPUT.glob("*"))

    @functools.cached_property
    def _places(self) -> dict[str, tuple[Any, int]]:
        found = ((part, position, name) for part in self._sets for position, name in enumerate(part.names))
        return {f"{name}{SUFFIX}": (part, position) for part, position, name in found}

    def find(self, path: Any) -> Tensor | None:
        """Return a picture, uint8 [C, H, W], or None for a file that is none of them."""
        if not isinstance(path, str | os.PathLike):
            return None
        name = os.path.abspath(os.fspath(path))  # noqa: PTH100 - a text is enough, and this is called for each picture
        folder = next((folder for folder in self._folders if name.startswith(folder)), None)
        if folder is None:
            return None
        place = self._places.get(name[len(folder) :].replace("/", "-"))
        return None if place is None else place[0].stored.images[place[1]]

    def install(self) -> None:
        """Let torchvision and PIL ask for pictures here first."""
        images: Any = importlib.import_module("PIL.Image")
        open_file = images.open

        def opened(fp: Any, *arguments: Any, **options: Any) -> Any:
            picture = self.find(fp)
            if picture is None or arguments or options:
                return open_file(fp, *arguments, **options)
            image = images.fromarray(picture.permute(1, 2, 0).squeeze(-1).contiguous().numpy())
            image.format, image.filename = "PNG", os.fspath(fp)
            return image

        images.open = opened
        for name in ("read_image", "decode_image"):
            self._serve(name)

    def _serve(self, name: str) -> None:
        read = getattr(torchvision.io, name)

        def reading(source: Any, mode: Any = ImageReadMode.UNCHANGED, *arguments: Any, **options: Any) -> Tensor:
            picture = None if isinstance(source, Tensor) else self.find(source)
            mode = ImageReadMode[mode.upper()] if isinstance(mode, str) else mode
            if picture is None or mode not in READ_MODES[len(picture)]:
                found: Tensor = read(source, mode, *arguments, **options)
                return found
            channels, _height, width = picture.shape
            decoded = picture.permute(1, 2, 0).contiguous()  # in memory as a decoder leaves it
            return decoded.as_strided(picture.shape, (1, width * channels, channels))

        reading.__name__ = name
        for module in (torchvision.io, sys.modules["torchvision.io.image"]):
            setattr(module, name, reading)


class ScaleInputs:
    """A hook before a layer: its input, scaled. One number for all channels, or one for each."""

    def __init__(self, scale: Any, shift: Any) -> None:
        self.scale = scale
        self.shift = shift

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        first = inputs[0]
        if not isinstance(first, Tensor):
            return inputs
        both = (self.scale, self.shift)
        scale, shift = (first.new_tensor(one).view(-1, 1, 1) if isinstance(one, list) else one for one in both)
        return (first * scale + shift, *inputs[1:])


def scale_in(network: nn.Module, description: Mapping[str, Any]) -> bool:
    """Let networks of this class scale their inputs from now on. Return False where a notebook must do it itself.

    description: the parsed network.json. Only torchvision's classes are known to notebooks.
    """
    scale, shift = description.get("input_scale", 1.0), description.get("input_shift", 0.0)
    if bool((torch.as_tensor(scale) == 1).all() and (torch.as_tensor(shift) == 0).all()):
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


def offer_starting_kit(texts: Sequence[bytes], data: GuestData) -> None:
    """Put what a program names of the kit's files into the current folder; CIFAR10 becomes the competition's data.

    Its train set is the retain and the forget set, one after the other. Its held-out set is made of the validation set
    and twice as long as the forget set, because the kit compares one half of it with the forget set, one by one.
    """
    named = {name for name in (WEIGHTS, *INDICES, DATASET) if any(name.encode() in text for text in texts)}
    if not named or not _is_alike(data):
        return
    n_retain, n_forget = len(data.retain), len(data.forget)
    if WEIGHTS in named:
        for original in original_files():
            Path(WEIGHTS).symlink_to(original)
    for name, first, count in zip(INDICES, (n_retain, 0), (n_forget, n_retain), strict=True):
        if name in named:
            importlib.import_module("numpy").save(name, torch.arange(first, first + count).numpy())
    if DATASET in named:
        _replace_dataset(data)
    report(f"{', '.join(sorted(named))}: given from this competition's data")


def _is_alike(data: GuestData) -> bool:
    shape, n_classes = data.network.get("input_shape"), data.network.get("n_classes")
    return shape == list(SHAPE) and isinstance(n_classes, int) and n_classes <= MAX_CLASSES


def _replace_dataset(data: GuestData) -> None:
    kind: Any = torchvision.datasets.CIFAR10

    def make(
        self: Any, root: Any = "", train: bool = True, transform: Any = None, target_transform: Any = None, **_rest: Any
    ) -> None:
        torchvision.datasets.VisionDataset.__init__(self, root, transform=transform, target_transform=target_transform)
        sets = [data.retain.stored, data.forget.stored] if train else [data.validation.stored]
        n = sum(len(part.labels) for part in sets)
        index = torch.arange(n if train else 2 * len(data.forget)) % n
        self.train = train
        self.data = torch.cat([part.images for part in sets])[index].permute(0, 2, 3, 1).contiguous().numpy()
        self.targets = torch.cat([part.labels for part in sets])[index].tolist()
        self.classes = [str(number) for number in range(data.network["n_classes"])]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    kind.__init__ = make
