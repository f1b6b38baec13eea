"""The arrays of the sides, fetched when a metric asks for them and kept.

A side is a mapping from array names to arrays: a dict, an open .npz file, or anything that loads on access.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.lib.format as npy
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import ARRAYS, AXES, MAY_BE_BOOLEAN, MAY_BE_EMPTY, Side, limits
from lethe.metrics.core.arrays import (
    class_labels,
    finite_array,
    require_no_probabilities,
    require_probabilities,
    require_within,
)
from lethe.metrics.core.derived_arrays import DERIVED
from lethe.metrics.core.input_checks import Contradiction, conflicts, shape_in
from lethe.metrics.core.invalid_input import InvalidMetricInput, MissingArray
from lethe.metrics.core.registry import Feature, Metric, Need

Array = npt.NDArray[Any]
Arrays = Mapping[str, Any]


class Inputs:
    """A lazy view on the arrays of the unlearned, retrained, oracle and original models, and of the split."""

    def __init__(
        self,
        unlearned: Arrays | None = None,
        retrained: Arrays | None = None,
        oracle: Arrays | None = None,
        original: Arrays | None = None,
        *,
        shared: Arrays | None = None,
    ) -> None:
        """Take the arrays of each side; `shared` holds labels and the like, which may also lie in any side.

        A single original model stands for as many equal copies as there are retrained models.
        """
        given = {Side.UNLEARNED: unlearned, Side.RETRAINED: retrained, Side.ORACLE: oracle, Side.ORIGINAL: original}
        self._stored: dict[Side, Arrays] = {side: arrays for side, arrays in given.items() if arrays is not None}
        self._shared: list[Arrays] = ([] if shared is None else [shared]) + list(self._stored.values())
        self._split_arrays = shared
        self._of_unlearned: dict[tuple[Any, ...], Any] = {}
        self._of_others: dict[tuple[Any, ...], Any] = {}

    def with_unlearned(self, unlearned: Arrays) -> "Inputs":
        """Return the same arrays with other unlearned models; what is computed of the other sides is shared."""
        given = {side.value: arrays for side, arrays in self._stored.items()} | {Side.UNLEARNED.value: unlearned}
        other = Inputs(**given, shared=self._split_arrays)
        other._of_others = self._of_others
        return other

    def _kept(self, side: Side) -> dict[tuple[Any, ...], Any]:
        """Return the arrays and features of a side that were computed; the split's may lie in the unlearned file."""
        return self._of_unlearned if side in {Side.UNLEARNED, Side.SHARED} else self._of_others

    @classmethod
    def from_files(cls, **paths: Path | None) -> "Inputs":
        """Open .npz files by side (`unlearned=`, `retrained=`, `oracle=`, `original=`); arrays load on first use.

        Raises InvalidMetricInput if a file cannot be read.
        """
        return cls(**{side: open_arrays(path, side) for side, path in paths.items() if path is not None})

    @property
    def sides(self) -> tuple[Side, ...]:
        """Return the sides that were given."""
        return tuple(self._stored)

    @cached_property
    def conflicts(self) -> list[Contradiction]:
        """Return the arrays that contradict others; asking for one of them raises InvalidMetricInput."""
        places = {side: [arrays] for side, arrays in self._stored.items()}
        return conflicts(places | ({} if self._split_arrays is None else {Side.SHARED: [self._split_arrays]}))

    def has_stored(self, side: Side, name: str) -> bool:
        """Return whether the array of this side was given."""
        return self._place(side, name) is not None

    def stored_names(self) -> list[tuple[str, str]]:
        """Return whose each array is, and its name."""
        given = [(f"the {side} models", arrays) for side, arrays in self._stored.items()]
        given += [] if self._split_arrays is None else [("the split", self._split_arrays)]
        return [(whose, name) for whose, arrays in given for name in arrays]

    def n_models(self, side: Side) -> int | None:
        """Return the number of models of a side, None where no array tells it."""
        return self._size(side, "N")

    def n_paired(self, side: Side) -> int | None:
        """Return the same, with a single original model as many times as there are retrained ones."""
        n_models = self.n_models(side)
        return (self.n_models(Side.RETRAINED) or 1) if side == Side.ORIGINAL and n_models == 1 else n_models

    def array(self, side: Side, name: str) -> Array:
        """Return an array of a side, stored or derived from stored ones.

        Raises MissingArray, with its capture level and how to get it, if it is neither.
        """
        return self._as_many(side, self._require(side, name))

    def has(self, side: Side, name: str) -> bool:
        """Return whether `array` would return an array; nothing is loaded."""
        if self._place(side, name) is not None or (side == Side.SHARED and self._counted(name) is not None):
            return True
        rules = DERIVED[name].rules if name in DERIVED else ()
        return any(all(self.has(_owner(side, part), part) for part in rule.needs) for rule in rules)

    def feature(self, side: Side, feature: Feature, parameters: Mapping[str, Any]) -> Any:
        """Return a feature of a side, computed once for equal parameters."""
        chosen = {name: parameters[name] for name in feature.parameters}
        key = (side, feature.name, tuple(sorted(chosen.items())))
        kept = self._kept(side)
        if key not in kept:
            kept[key] = self._computed(side, feature, chosen)
        return kept[key] if feature.against else self._as_many(side, kept[key])

    def _computed(self, side: Side, feature: Feature, chosen: Mapping[str, Any]) -> Any:
        read = self.array if feature.by_run or feature.against else self._require
        arrays = [read(side, name) for name in feature.arrays]
        _require_same_models(side, dict(zip(feature.arrays, arrays, strict=True)))
        arrays += [self._require(Side.RETRAINED, name) for name in feature.against]
        arrays += [self._require(Side.SHARED, name) for name in feature.shared]
        _require_labels_fit(side, dict(zip((*feature.arrays, *feature.against, *feature.shared), arrays, strict=True)))
        try:
            found = feature.function(*arrays, **chosen)
        except InvalidMetricInput as error:
            if feature.against:  # the message says which of the two sides is at fault
                raise
            raise InvalidMetricInput(
                f"{side} models: {error}", side=side.value, model=error.model, example=error.example
            ) from error
        return found if feature.against else np.asarray(found)

    def value(self, need: Need, parameters: Mapping[str, Any]) -> Any:
        """Return what one argument of a metric's function needs; None where it is optional and missing."""
        if need.optional and not all(self.has(_owner(side, name), name) for side, name in need.sources):
            return None
        if isinstance(need.array, Feature):
            return self.feature(need.side, need.array, parameters)
        return self.array(need.side, need.array)

    def missing(self, metric: Metric) -> list[MissingArray]:
        """Return what keeps this metric from being computed, one error per array."""
        wanted = {
            (_owner(side, name), name)
            for need in metric.needs.values()
            if not need.optional
            for side, name in need.sources
        }
        return [self._missing(side, name) for side, name in sorted(wanted) if not self.has(side, name)]

    def _require(self, side: Side, name: str) -> Array:
        found = self._find(side, name)
        if found is None:
            raise self._missing(side, name)
        return found

    def _find(self, side: Side, name: str) -> Array | None:
        kept, key = self._kept(side), (side, name)
        if key not in kept:
            found = self._load(side, name)
            if found is None:
                return None
            kept[key] = found
        array: Array = kept[key]
        return array

    def _load(self, side: Side, name: str) -> Array | None:
        place = self._place(side, name)
        if place is not None:
            if wrong := next((one for one in self.conflicts if (one.side, one.name) == (side, name)), None):
                raise InvalidMetricInput(wrong.message, side=None if side == Side.SHARED else side.value)
            return _checked(place[name], side, name)
        counted = self._counted(name) if side == Side.SHARED else None
        if counted is not None:
            return np.asarray(counted)
        for rule in DERIVED[name].rules if name in DERIVED else ():
            if all(self.has(_owner(side, part), part) for part in rule.needs):
                parts = {part: self._require(_owner(side, part), part) for part in rule.needs}
                _require_labels_fit(side, parts)
                return np.asarray(rule.function(*parts.values()))
        return None

    def _place(self, side: Side, name: str) -> Arrays | None:
        places = self._shared if side == Side.SHARED else [self._stored.get(side, {})]
        return next((arrays for arrays in places if name in arrays), None)

    def _counted(self, name: str) -> int | None:
        """Return a number that the arrays' shapes give."""
        if name == "n_models":
            return self._size(Side.RETRAINED, "N")
        if name == "n_classes":
            sizes = (self._size(side, "C") for side in self._stored)
            return next((size for size in sizes if size is not None), None)
        return None

    def _size(self, side: Side, axis: str) -> int | None:
        for name, known in (DERIVED | ARRAYS).items():
            place = None if known.shared or axis not in known.axes else self._place(side, name)
            if place is not None and len(shape := shape_in(place, name)) == len(known.axes):
                return shape[known.axes.index(axis)]
        return None

    def _as_many(self, side: Side, array: Array) -> Array:
        """Repeat the rows of a single original model, without copying."""
        if side != Side.ORIGINAL or array.ndim == 0 or array.shape[0] != 1:
            return array
        return np.broadcast_to(array, (self._size(Side.RETRAINED, "N") or 1, *array.shape[1:]))

    def _missing(self, side: Side, name: str) -> MissingArray:
        known = DERIVED.get(name) or ARRAYS.get(name)
        level = int(known.level) if known else 0
        if side in (Side.ORACLE, Side.ORIGINAL) and name in ARRAYS and ARRAYS[name].of_runs:
            how = "only unlearning runs have it"
            message = f"the {side} models have no `{name}`: {how}"
            return MissingArray(message, side=side.value, array=name, level=level, how=how)
        if side != Side.SHARED and side not in self._stored:
            how = f"give the arrays of the {side} models"
        else:
            how = ARRAYS[name].how if name in ARRAYS else " or ".join(_how_derived(name))
        whose = "the split" if side == Side.SHARED else f"the {side} models"
        message = f"array `{name}` of {whose} is missing (capture level {level}): {how}"
        return MissingArray(message, side=side.value, array=name, level=level, how=how)


def _owner(side: Side, name: str) -> Side:
    known = ARRAYS.get(name) or DERIVED.get(name)
    return Side.SHARED if known is not None and known.shared else side


def _checked(values: Any, side: Side, name: str) -> Array:
    """Return a stored array, refused where the catalogue says that it cannot be this one: type, shape and values.

    Floating-point numbers are returned as float64, but for the outputs of networks, which are large.
    """
    known = ARRAYS.get(name) or DERIVED.get(name)
    if known is None or (name.startswith(MAY_BE_EMPTY) and np.size(values) == 0):
        return np.asarray(values)
    axes = [AXES.get(axis, axis) for axis in known.axes]
    about: dict[str, Any] = {"name": f"`{name}`", "side": None if side == Side.SHARED else side.value}
    if np.asarray(values).dtype.kind == "b" and not name.endswith(MAY_BE_BOOLEAN):
        whose = "" if side == Side.SHARED else f"{side} "
        raise InvalidMetricInput(f"{whose}`{name}` must be real numbers, not true and false", side=side.value)
    array = finite_array(values, axes=axes, **about)
    if any(axis.isdigit() and int(axis) != size for axis, size in zip(known.axes, array.shape, strict=True)):
        raise InvalidMetricInput(
            f"`{name}` must have shape ({', '.join(known.axes)}), not {array.shape}", side=side.value
        )
    if name.endswith("_logits"):
        require_no_probabilities(array, **about)
        return array
    if array.dtype.kind == "f":
        array = array.astype(np.float64, copy=False)
    if allowed := limits(name):
        require_within(array, allowed, axes=axes, **about)
    if name.endswith("_probabilities"):
        require_probabilities(array, **about)
    return array


def _require_labels_fit(side: Side, arrays: Mapping[str, Array]) -> None:
    """Raise InvalidMetricInput unless labels are class numbers of the outputs that they come with."""
    for outputs, values in arrays.items():
        name = outputs.removesuffix("_logits").removesuffix("_probabilities") + "_labels"
        if name in arrays and values.ndim > 1:
            labels, (n_examples, n_classes) = arrays[name], values.shape[-2:]
            class_labels(labels, n_examples=n_examples, n_classes=n_classes, name=f"`{name}` of {side} `{outputs}`")


def _how_derived(name: str) -> Iterable[str]:
    for rule in DERIVED[name].rules if name in DERIVED else ():
        for part in rule.needs:
            yield f"`{part}`: {ARRAYS[part].how}" if part in ARRAYS else f"`{part}`"


def _require_same_models(side: Side, arrays: Mapping[str, Array]) -> None:
    """Raise InvalidMetricInput, stating all sizes, if the arrays of a side are of other numbers of models."""
    axes = {name: (DERIVED.get(name) or ARRAYS[name]).axes for name in arrays}
    sizes = {name: array.shape[0] for name, array in arrays.items() if axes[name][:1] == ("N",) and array.ndim}
    if len(set(sizes.values())) > 1:
        stated = ", ".join(f"{name} of {size}" for name, size in sizes.items())
        raise InvalidMetricInput(f"{side} arrays are of unequal numbers of models: {stated}", side=side.value)


class ArrayFile(Mapping[str, Array]):
    """The arrays of an .npz file. Each is read when it is asked for, and the file is open only while it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with np.load(path, allow_pickle=False) as opened:
            self._names = tuple(opened)

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        with np.load(self._path, allow_pickle=False) as opened:
            found: Array = opened[name]
        return found

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array, from its header alone."""
        with ZipFile(self._path) as archive, archive.open(f"{name}.npy") as member:
            read = npy.read_array_header_1_0 if npy.read_magic(member) == (1, 0) else npy.read_array_header_2_0
            shape: tuple[int, ...] = read(member)[0]
        return shape

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def open_arrays(path: Path, side: str) -> Arrays:
    """Return the arrays of an .npz file. Raises InvalidMetricInput if it cannot be read."""
    if path.suffix == ".npy":
        raise InvalidMetricInput(f"the {side} file {path} holds one array, not named arrays (.npz)", side=side)
    try:
        return ArrayFile(path)
    except (OSError, ValueError, BadZipFile) as error:
        raise InvalidMetricInput(f"the {side} file {path} cannot be read as .npz: {error}", side=side) from error
