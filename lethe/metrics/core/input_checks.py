"""The arrays of all sides against each other: models, examples, classes, labels.

Sizes are compared before anything is loaded. `Inputs` refuses an array that contradicts the others when a metric asks
for it, so that other metrics go on; `require_consistent` of input_warnings refuses the whole at once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import ARRAYS, AXES, Side
from lethe.metrics.core.derived_arrays import DERIVED

Array = npt.NDArray[Any]
OWN_SIZES = frozenset({"W", "L"})  # axes that each group of questions has of its own
NOT_COMPARED = frozenset({"k", "M", "3"})


@dataclass(frozen=True)
class Contradiction:
    """An array that contradicts another one. message: names both, with their shapes."""

    side: Side
    name: str
    message: str


@dataclass(frozen=True)
class _Placed:
    side: Side
    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        whose = "" if self.side == Side.SHARED else f"{self.side} "
        return f"{whose}`{self.name}` {self.shape}"


def conflicts(places: Mapping[Side, list[Mapping[str, Any]]]) -> list[Contradiction]:
    """Return what contradicts another array. places: the mappings of each side; what the split shares lies in any."""
    found = list(_label_conflicts(places))
    known = list(_placed(places))
    for axis, members in _by_axis(known).items():
        found += _unequal(axis, members)
    return found + list(_wrong_counts(places, known))


def _placed(places: Mapping[Side, list[Mapping[str, Any]]]) -> Iterator[_Placed]:
    for side, mappings in places.items():
        for mapping in mappings:
            for name in mapping:
                known = ARRAYS.get(name) or DERIVED.get(name)
                if known is not None and len(shape := shape_in(mapping, name)) == len(known.axes):
                    yield _Placed(Side.SHARED if known.shared else side, name, known.axes, shape)


def shape_in(mapping: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return the shape of an array, of a file's from its header alone."""
    shape_of = getattr(mapping, "shape_of", None)
    return np.shape(mapping[name]) if shape_of is None else tuple(shape_of(name))


def _by_axis(placed: list[_Placed]) -> dict[str, list[tuple[int, _Placed]]]:
    """Return sizes and arrays by what must be equal: the models of a side, the examples of a set, the classes."""
    found: dict[str, list[tuple[int, _Placed]]] = {}
    for one in placed:
        if one.name == "metric_per_run" or 0 in one.shape:
            continue
        for axis, size in zip(one.axes, one.shape, strict=True):
            if axis in NOT_COMPARED:
                continue
            group = f" of {one.name.split('_')[0]}" if axis in OWN_SIZES else ""
            group = " of holdout" if axis == "T" and one.name.startswith("holdout") else group
            group = f" of the {one.side} side" if axis == "N" else group
            found.setdefault(f"{axis}{group}", []).append((size, one))
    return found


def _unequal(axis: str, members: list[tuple[int, _Placed]]) -> Iterator[Contradiction]:
    """Yield the arrays whose size is not that of most others."""
    usual = Counter(size for size, _ in members).most_common(1)[0][0]
    reference = next(one for size, one in members if size == usual)
    what = f"unequal numbers of {AXES[axis[0]]}{axis[1:]}"
    for size, one in members:
        if size != usual:
            message = f"{what}: {one} has {size}, {reference} has {usual}; allowed are equal numbers"
            yield Contradiction(one.side, one.name, message)


def _label_conflicts(places: Mapping[Side, list[Mapping[str, Any]]]) -> Iterator[Contradiction]:
    """Yield what the split shares and lies in several places with other values."""
    first: dict[str, tuple[Side, Array]] = {}
    for side, mappings in places.items():
        for mapping in mappings:
            for name in mapping:
                if name not in ARRAYS or not ARRAYS[name].shared:
                    continue
                here = np.asarray(mapping[name])
                if name not in first:
                    first[name] = (side, here)
                elif difference := _difference(name, first[name], (side, here)):
                    yield Contradiction(Side.SHARED, name, difference)


def _difference(name: str, one: tuple[Side, Array], other: tuple[Side, Array]) -> str:
    (first, a), (second, b) = one, other
    names = [f"the {side} arrays" if side != Side.SHARED else "`shared`" for side in (first, second)]
    if a.shape != b.shape:
        return f"`{name}` is {a.shape} in {names[0]} and {b.shape} in {names[1]}; allowed are equal ones"
    different = np.argwhere(a != b)
    if not len(different):
        return ""
    where = tuple(int(i) for i in different[0])
    place = f" at {where[0] if len(where) == 1 else where}" if where else ""
    return (
        f"`{name}` of {names[0]} and of {names[1]} differ in {len(different)} of {a.size} values: {a[where]} and "
        f"{b[where]}{place}; all sides must hold the same examples in the same order"
    )


def _wrong_counts(places: Mapping[Side, list[Mapping[str, Any]]], placed: list[_Placed]) -> Iterator[Contradiction]:
    """Yield a stated number of models or classes that the arrays do not have."""
    for name, axis, side in (("n_models", "N", Side.RETRAINED), ("n_classes", "C", None)):
        stated = next((m[name] for mappings in places.values() for m in mappings if name in m), None)
        if stated is None:
            continue
        for one in placed:
            if axis in one.axes and (side is None or one.side == side) and np.size(stated) == 1:
                size = one.shape[one.axes.index(axis)]
                if size != int(np.asarray(stated).item()):
                    message = f"`{name}` is {np.asarray(stated).item()}, and {one} has {size} {AXES[axis]}"
                    yield Contradiction(Side.SHARED, name, message)
                    break
