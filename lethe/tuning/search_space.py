"""Values to try for a method's constants, from the ranges that its file declares: at random, or on a grid."""

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import product
from random import Random

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Constant, Range, Value, constants_in
from lethe.methods.inlining import parse

Settings = dict[str, Value]


def search_ranges(source: str, *, fixed: Collection[str] = ()) -> dict[str, Range]:
    """Return the ranges that a method's file declares, but for the constants in `fixed`; empty where it has none.

    Raises InvalidInput if the source is not Python, or a range is on another constant's line.
    """
    found = {each.name: each.range for each in source_constants(source) if each.range is not None}
    return {name: each for name, each in found.items() if name not in fixed}


def own_settings(source: str, ranges: Mapping[str, Range]) -> Settings:
    """Return the values that the file has for the constants that are searched."""
    return {constant.name: constant.value for constant in source_constants(source) if constant.name in ranges}


def source_constants(source: str) -> list[Constant]:
    """Return the constants of a method's source. Raises InvalidInput if it is not Python."""
    try:
        return constants_in(parse(source), source)
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"the method is not Python: {error}") from error


def random_settings(ranges: Mapping[str, Range], *, seed: int, trial: int) -> Settings:
    """Draw the settings of one trial; each trial has a stream of its own, so a study can be taken up anywhere."""
    random = Random(f"{seed} {trial}")  # noqa: S311  a search, not a secret
    return {name: _drawn(found, random) for name, found in ranges.items()}


def grid_settings(ranges: Mapping[str, Range], *, points: int) -> Iterator[Settings]:
    """Yield the product of `points` values of every range, ends included; of a choice, all values."""
    columns = [_points(found, points) for found in ranges.values()]
    for values in product(*columns):
        yield dict(zip(ranges, values, strict=True))


def _drawn(found: Range, random: Random) -> Value:
    if found.kind == "choice":
        return random.choice(found.values)
    low, high = _ends(found)
    if found.kind == "int":
        return random.randint(int(low), int(high))
    return _log(random.random(), low, high) if found.kind == "log" else random.uniform(low, high)


def _points(found: Range, points: int) -> list[Value]:
    if found.kind == "choice":
        return list(found.values)
    low, high = _ends(found)
    shares = [number / (points - 1) for number in range(points)] if points > 1 else [0.5]
    if found.kind == "log":
        return [_log(share, low, high) for share in shares]
    values = [low + share * (high - low) for share in shares]
    return list(dict.fromkeys(round(value) for value in values)) if found.kind == "int" else list(values)


def _ends(found: Range) -> tuple[float, float]:
    low, high = (float(value) for value in found.values)
    return low, high


def _log(share: float, low: float, high: float) -> float:
    """Return the point at `share` of the way, in logarithms; exactly an end at 0 or 1."""
    return {0.0: low, 1.0: high}.get(share, math.exp(math.log(low) + share * math.log(high / low)))
