"""How large a network is at least, from its name and options alone: neither data nor torch is needed.

A server asks before it takes a file; a worker counts what it builds (`lethe.networks.builders.limit_parameters`).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

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
