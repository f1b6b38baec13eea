"""Recompute the golden values in a folder: `python -m tests.golden.check DIR`.

Prints one line per value, "bits" or the largest relative difference. Exit status 1 if a value is beyond its tolerance
or cannot be recomputed, or a file holds no value or a key that is neither input nor value; 2 if the folder holds no
set. What is not compared is said and is not a failure: sets and values that the folder lacks, inputs that nobody
reads.

Tolerances: exact for integers and words; 16 units in the last place where DIR/VERIFIED.txt says "bits"; rtol 2e-5 and
atol 2e-6 for what is published in float32, atol no more than a two-thousandth of the largest value; rtol and atol 1e-12
for the rest, but no atol for p-values, which may be as small as it. Equal bits are promised on one machine with one set
of versions only: exponentials and logarithms of another processor may differ in their last bit.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from tests.golden.attack_metric_sets import ATTACK_METRIC_SETS
from tests.golden.golden_set import Arrays, GoldenSet
from tests.golden.image_metric_sets import IMAGE_METRIC_SETS
from tests.golden.method_sets import METHOD_SETS
from tests.golden.text_sets import TEXT_SETS

SETS: dict[str, GoldenSet] = {**IMAGE_METRIC_SETS, **ATTACK_METRIC_SETS, **METHOD_SETS, **TEXT_SETS}
FLOAT32_TOLERANCE = (2e-5, 2e-6)
MAX_RELATIVE_ATOL = 5e-4  # of atol, so that it does not swallow arrays of tiny values
FLOAT64_TOLERANCE = (1e-12, 1e-12)
P_VALUE_TOLERANCE = (1e-12, 0.0)
UNITS_IN_THE_LAST_PLACE = 16  # what another processor may do to a value that was equal to the bit on one


@dataclass(frozen=True)
class Comparison:
    """One value: what to print about it, and whether it is within its tolerance; None: there is nothing to compare."""

    set_name: str
    value_name: str
    verdict: str
    within: bool | None


class Inputs(dict[str, npt.NDArray[Any]]):
    """The inputs of a set; knows which of them were asked for."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__(arrays)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        self.read.add(name)
        return super().__getitem__(name)

    def items(self) -> Any:
        """Return all items; all count as read."""
        self.read |= self.keys()
        return super().items()


def compare_folder(folder: Path) -> list[Comparison]:
    """Return the comparison of every value of every `*.npz` in the folder, sorted by file."""
    exact = _verified_bits(folder)
    return [line for path in sorted(folder.glob("*.npz")) for line in compare_file(path, exact=exact)]


def compare_file(path: Path, *, exact: frozenset[tuple[str, str]] = frozenset()) -> Iterator[Comparison]:
    """Yield the comparison of every `out_` value of one file; `exact` holds (set, value) that must agree to the bit."""
    name = path.stem
    if name not in SETS:
        yield Comparison(name, "*", "no function recomputes this set", within=False)
        return
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            stored = {key: file[key] for key in file.files}
    except (OSError, ValueError, BadZipFile) as error:
        yield Comparison(name, "*", f"cannot be read: {error}", within=False)
        return
    for key in stored:
        if not key.startswith(("in_", "out_")):
            yield Comparison(name, key, "is neither an input (in_) nor a value (out_)", within=False)
    given = {key.removeprefix("in_"): value for key, value in stored.items() if key.startswith("in_")}
    expected = {key.removeprefix("out_"): value for key, value in stored.items() if key.startswith("out_")}
    yield from _compare_set(name, SETS[name], given, expected, exact)


def _compare_set(
    name: str, golden: GoldenSet, given: Arrays, expected: Arrays, exact: frozenset[tuple[str, str]]
) -> Iterator[Comparison]:
    if not expected:
        yield Comparison(name, "*", "the file holds no value (out_)", within=False)
        return
    inputs = Inputs(given)
    try:
        computed: Mapping[str, Any] = golden.recompute(inputs)
    except Exception as error:
        yield Comparison(name, "*", f"{type(error).__name__}: {error}", within=False)
        return
    for value_name, value in expected.items():
        if value_name in golden.not_computed:
            yield Comparison(name, value_name, "is of nothing that Lethe computes", within=None)
            continue
        if value_name not in computed:
            yield Comparison(name, value_name, "not recomputed", within=False)
            continue
        tolerance = _tolerance(golden, value_name, value)
        if (name, value_name) in exact and value.dtype.kind in "fc":
            tolerance = UNITS_IN_THE_LAST_PLACE * float(np.finfo(value.dtype).eps), 0.0
        yield compare_value(name, value_name, np.asarray(computed[value_name]), value, tolerance)
    for value_name in sorted(computed.keys() - expected.keys()):
        yield Comparison(name, value_name, "can be recomputed, and is not in the file", within=None)
    for input_name in sorted(inputs.keys() - inputs.read):
        yield Comparison(name, f"in_{input_name}", "is read by nothing", within=None)


def _tolerance(golden: GoldenSet, value_name: str, expected: npt.NDArray[Any]) -> tuple[float, float]:
    if value_name in golden.p_values:
        return P_VALUE_TOLERANCE
    if value_name not in golden.float32:
        return FLOAT64_TOLERANCE
    rtol, atol = FLOAT32_TOLERANCE
    return rtol, min(atol, MAX_RELATIVE_ATOL * float(np.nanmax(np.abs(expected), initial=0.0)))


def compare_value(
    name: str, value_name: str, computed: npt.NDArray[Any], expected: npt.NDArray[Any], tolerance: tuple[float, float]
) -> Comparison:
    if computed.shape != expected.shape:
        return Comparison(name, value_name, f"shape {computed.shape}, not {expected.shape}", within=False)
    if expected.dtype.kind not in "fc":
        same = bool(np.array_equal(computed, expected))
        return Comparison(name, value_name, "bits" if same else "differs", within=same)
    # a published float32 is compared with the recomputed value in float32: it cannot hold more
    if np.array_equal(computed.astype(expected.dtype), expected, equal_nan=True):
        return Comparison(name, value_name, "bits", within=True)
    computed, expected = computed.astype(np.float64), expected.astype(np.float64)
    rtol, atol = tolerance
    within = bool(np.allclose(computed, expected, rtol=rtol, atol=atol, equal_nan=True))
    return Comparison(name, value_name, f"rel {_largest_relative_difference(computed, expected):.1e}", within=within)


def _largest_relative_difference(computed: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    same = (computed == expected) | (np.isnan(computed) & np.isnan(expected))
    scale = np.maximum(np.abs(expected), np.finfo(np.float64).tiny)
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.max(np.where(same, 0.0, np.abs(computed - expected) / scale)))


def _verified_bits(folder: Path) -> frozenset[tuple[str, str]]:
    listing = folder / "VERIFIED.txt"
    if not listing.exists():
        return frozenset()
    rows = (line.split() for line in listing.read_text().splitlines())
    return frozenset((row[0], row[1]) for row in rows if len(row) == 3 and row[2] == "bits")


def main(arguments: list[str]) -> int:
    """Print the comparison of the folder named by the only argument; return the exit status."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tests.golden.check DIR   (a folder of NAME.npz files)", file=sys.stderr)
        return 2
    lines = compare_folder(Path(arguments[0]))
    if not lines:
        print(f"{arguments[0]} holds no .npz file", file=sys.stderr)
        return 2
    status = print_all(lines)
    if lacking := sorted(SETS.keys() - {line.set_name for line in lines}):
        print(f"not in the folder: {', '.join(lacking)}")
    return status


def print_all(lines: list[Comparison]) -> int:
    """Print each comparison and how many there are; return the exit status."""
    for line in lines:
        mark = "   BEYOND TOLERANCE" if line.within is False else ""
        print(f"{line.set_name:28} {line.value_name:36} {line.verdict}{mark}".strip())
    compared = [line for line in lines if line.within is not None]
    bits, beyond = sum(line.verdict == "bits" for line in compared), sum(not line.within for line in compared)
    print(f"{len(compared)} values, {bits} to the bit, {beyond} beyond tolerance")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
