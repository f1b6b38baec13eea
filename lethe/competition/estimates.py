"""What a competition costs, from its file alone: sizes of networks, disk, training, recipes, a kit.

A server asks for a network's least size before it takes a file; a worker counts what it builds
(`lethe.networks.builders.limit_parameters`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lethe.competition.file import CompetitionFile, Training

MAX_PARAMETERS = 2**28  # in float32 they fill the largest frame of a run, 1 GiB
MAX_OPTION = 65_536  # of a number in the options of a network whose size is not known here
MAX_LAYERS = 10_000
CLASSES, INPUTS, CHANNELS = 2, 1, 1  # the least that data can have

Options = Mapping[str, Any]


def describe_excess(name: str, options: Options) -> str | None:
    """Return what is too large in a network's options, as a predicate; None where nothing is known to be.

    A network given as Python text has no known size: its process is limited instead.
    """
    if any(len(value) > MAX_LAYERS for value in options.values() if isinstance(value, list | tuple)):
        return f"lists more than {MAX_LAYERS:,} layers"
    if name == "module":
        return None
    return (
        _excess_of_parameters(MIN_PARAMETERS[name], options) if name in MIN_PARAMETERS else _excess_of_numbers(options)
    )


def _excess_of_parameters(least: Callable[[Options], int], options: Options) -> str | None:
    try:
        n_parameters = least(options)
    except (TypeError, ValueError, ArithmeticError):
        return None  # of another type than the builder takes, which says so itself
    if n_parameters <= MAX_PARAMETERS:
        return None
    return f"has at least {n_parameters:,} parameters; at most {MAX_PARAMETERS:,} are allowed"


def _excess_of_numbers(options: Options) -> str | None:
    for option, value in options.items():
        numbers = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(number, int | float) and not abs(number) <= MAX_OPTION for number in numbers):
            return f"has {option} = {value!r:.80}; at most {MAX_OPTION:,} is allowed"
    return None


def _mlp(options: Options) -> int:
    return _pairs([INPUTS, *options.get("hidden", (64,)), CLASSES])


def _small_cnn(options: Options) -> int:
    return 9 * _pairs([CHANNELS, *options.get("widths", (8, 16, 32))])


def _all_cnn(options: Options) -> int:
    width = int(options.get("width", 96))
    return 148 * width * width


def _vit(options: Options) -> int:
    width, depth = int(options.get("width", 192)), int(options.get("depth", 6))
    return 8 * depth * width * width


def _llama(options: Options) -> int:
    """With the table of rotations, which is not a parameter but memory all the same."""
    head_width = int(options.get("width", 1)) // int(options.get("heads", 1)) or 1
    return _decoder(options) + int(options.get("context", 1)) * head_width // 2


def _gpt2(options: Options) -> int:
    return _decoder(options) + int(options.get("context", 1)) * int(options.get("width", 1))


def _decoder(options: Options) -> int:
    width, hidden = int(options.get("width", 1)), int(options.get("hidden_width", 1))
    return int(options.get("layers", 1)) * 2 * width * (width + hidden)


def _pairs(sizes: Sequence[int]) -> int:
    return sum(int(before) * int(after) for before, after in pairwise(sizes))


MIN_PARAMETERS: dict[str, Callable[[Options], int]] = {
    "mlp": _mlp,
    "small_cnn": _small_cnn,
    "all_cnn": _all_cnn,
    "vit": _vit,
    "llama": _llama,
    "gpt2": _gpt2,
}


RATES = {"cpu": 2e10, "cuda": 1e14}  # operations a second that one process trains with, as a rule of thumb
BACKWARD = 3  # a step costs its forward pass three times
STEP_S = 2e-4  # that a step takes beyond its arithmetic: what small networks mostly do
FASTEST_STEP_S = 5e-6  # of it, what is left where code is compiled or many models are stacked

Shape = tuple[int, int, int]


def arithmetic_seconds(operations: float, recipe: Training, *, n_images: int, device: str = "cpu") -> float:
    """Return what one model's training takes of arithmetic. operations: of one image's forward pass."""
    return BACKWARD * operations * n_images * recipe.epochs / RATES[device]


def retraining_seconds(operations: float, recipe: Training, *, n_images: int, step_s: float = STEP_S) -> float:
    """Return about how long one model trains on the CPU, its steps' own time included.

    With FASTEST_STEP_S: how long the exact recipe takes at least, in any code.
    """
    steps = recipe.epochs * -(-n_images // recipe.batch_size)
    return steps * step_s + arithmetic_seconds(operations, recipe, n_images=n_images)


def mlp_operations(shape: Shape, n_classes: int, hidden: Sequence[int] = (64,)) -> int:
    """Return the operations of the network `mlp` for one image."""
    channels, height, width = shape
    return 2 * sum(a * b for a, b in pairwise([channels * height * width, *hidden, n_classes]))


def small_cnn_operations(shape: Shape, n_classes: int, widths: Sequence[int] = (8, 16, 32)) -> int:
    """Return the operations of the network `small_cnn` for one image: each layer halves the image after it."""
    channels, height, width = shape
    total = 0
    for before, after in pairwise([channels, *widths]):
        total += 2 * 9 * before * after * height * width
        height, width = (height // 2, width // 2) if min(height, width) >= 2 else (height, width)
    return total + 2 * widths[-1] * n_classes


@dataclass(frozen=True)
class RecipeCost:
    """n_models: on both splits. epochs: of all of them. seconds: of one process, about; None where not known."""

    n_models: int
    epochs: int
    seconds: float | None

    def __str__(self) -> str:
        about = "" if self.seconds is None else f", about {self.seconds:.3g} s of one process"
        return f"{self.n_models} on both splits, {self.epochs} epochs{about}"


def recipe_cost(file: CompetitionFile, *, retraining_s: float) -> RecipeCost:
    """Return what the models of other recipes cost. retraining_s: of one by the plain recipe; 0 if it is not known.

    An epoch is taken to cost the same whatever the batch size: smaller batches cost more.
    """
    recipes = file.splits.recipes
    if recipes is None:
        return RecipeCost(0, 0, None)
    epochs = 2 * recipes.models * sum(each.applied(file.training).epochs for each in recipes.variations)
    seconds = retraining_s * epochs / file.training.epochs if retraining_s else None
    return RecipeCost(2 * recipes.models * len(recipes.variations), epochs, seconds)


# images, channels, height and width, classes of data sets that may not be at hand: their makers' numbers
KNOWN_SHAPES: dict[str, tuple[int, tuple[int, int, int], int]] = {
    "digits": (1_797, (1, 8, 8), 10),
    "mnist": (70_000, (1, 28, 28), 10),
    "fashion-mnist": (70_000, (1, 28, 28), 10),
    "cifar10": (60_000, (3, 32, 32), 10),
    "cifar20": (60_000, (3, 32, 32), 20),
    "cifar100": (60_000, (3, 32, 32), 100),
    "svhn": (99_289, (3, 32, 32), 10),
    "utkface": (23_708, (3, 64, 64), 5),
    "casia-surf": (35_000, (3, 32, 32), 10),
    "femnist": (70_000, (1, 28, 28), 62),
}
# of one network with its usual options; what data and classes change of it is under one part in twenty
NETWORK_BYTES = {
    "resnet20": 1_090_000,
    "resnet56": 3_430_000,
    "resnet110": 6_950_000,
    "all_cnn": 5_510_000,
    "vit": 10_800_000,
    "tiny_vit": 42_300_000,
    "resnet18": 44_800_000,
    "resnet34": 85_300_000,
    "resnet50": 94_500_000,
}
ARRAY_BYTES = {0: 8, 1: 4, 2: 2}  # of one number: confidences float64, losses float32, logits float16


@dataclass(frozen=True)
class DiskEstimate:
    """Bytes. models: kept with both splits; None for a network of unknown size. outputs: of one submission's runs on
    one split, with the weights that are kept of them; None for data or a network of unknown size."""

    models: int | None
    outputs: int | None


def estimate_disk(file: CompetitionFile) -> DiskEstimate:
    """Return what both splits keep of their models, and what each submission adds."""
    network = NETWORK_BYTES.get(file.network.name) if not file.network.options else None
    kept = 1 + file.n_models * (2 if file.scoring.setup == "reuse-n-n" else 1)
    n_probed = min(file.report.keep_weights, file.n_models)  # of the oracle they are kept for this alone
    known = KNOWN_SHAPES.get(file.dataset.name)
    if known is None or (n_probed and network is None):
        outputs = None
    else:
        n_images, _, n_classes = known
        run = run_bytes(file, n_train=train_size(file, n_images), n_images=n_images, n_classes=n_classes)
        outputs = round(file.n_models * run) + n_probed * (network or 0)
    return DiskEstimate(models=None if network is None else 2 * (kept + n_probed) * network, outputs=outputs)


def train_size(file: CompetitionFile, n_images: int) -> int:
    """Return how many of the images a network learns from."""
    splits = file.splits
    return splits.train_size or round(n_images * (1 - splits.validation_fraction - splits.test_fraction))


def run_bytes(file: CompetitionFile, *, n_train: int, n_images: int, n_classes: int) -> float:
    """Return what is stored of one run, or of one retrained model beside its weights."""
    forget = file.splits.forget.fraction * n_train
    test = file.splits.test_fraction * n_images
    retain = max(forget, test)
    levels = file.report.capture_levels
    stored = ARRAY_BYTES[0] * forget
    if 1 in levels:
        stored += ARRAY_BYTES[1] * (forget + test + retain)
    if 2 in levels:
        stored += ARRAY_BYTES[2] * n_classes * (forget + test + retain)
    if 3 in levels:
        stored += 4 * 3 * n_classes**2
    return stored


# Of runs: fewer do not put entries into the order that the server finds (docs/participants/submissions.md).
MIN_FOR_A_SHARE = 16
MIN_KIT_MODELS = 8
MAX_KIT_MODELS = 2 * MIN_FOR_A_SHARE  # as many for an oracle
SMALL_NETWORK_BYTES = 4 << 20


def kit_models(n_models: int, *, network_bytes: int) -> int:
    """Return how many retrained models the outputs of a kit come from.

    Enough for a share of the oracle where they are few beside the split's N, or where the network is small.
    """
    if network_bytes <= SMALL_NETWORK_BYTES:
        return MAX_KIT_MODELS
    return min(MAX_KIT_MODELS, max(MIN_KIT_MODELS, n_models // 8))
