"""Compare metrics of runs, attacks and certificates with their authors' values: `python -m tests.golden.audits DIR`.

DIR holds privacy.npz and tests.npz. Every stored output is recomputed and compared, or listed as not computed with the
reason. Exit status 1 if a value is beyond its tolerance or belongs to neither.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.golden import audits_of_privacy, audits_of_tests

Array = npt.NDArray[Any]
OUTPUT = re.compile(r"(?:(?!_in_(?!order_)).)*_out")  # <section>_in_<what> is an input, though it is called out
Recompute = Callable[[Mapping[str, Array]], Iterator[tuple[str, Any, float]]]
SETS: dict[str, tuple[Recompute, Mapping[str, str]]] = {
    "privacy": (audits_of_privacy.recomputed, audits_of_privacy.NOT_COMPUTED),
    "tests": (audits_of_tests.recomputed, audits_of_tests.NOT_COMPUTED),
}


@dataclass(frozen=True)
class Line:
    """One stored value: what was found, and whether it is within its tolerance; None: not computed."""

    name: str
    verdict: str
    within: bool | None


def compared(stored: Mapping[str, Array], recompute: Recompute, not_computed: Mapping[str, str]) -> Iterator[Line]:
    """Yield a line for every stored output, in the order of the names."""
    found = {name: (value, tolerance) for name, value, tolerance in recompute(stored)}
    for name in sorted(name for name in stored if OUTPUT.match(name)):
        if name in found:
            yield _line(name, *found[name], stored[name])
            continue
        reason = next((why for start, why in not_computed.items() if name.startswith(start)), None)
        yield Line(name, reason or "recomputed by nothing", None if reason else False)
    for name in sorted(found.keys() - stored.keys()):
        yield Line(name, "is not in the file", within=False)


def _line(name: str, value: Any, tolerance: float, expected: Array) -> Line:
    computed = np.asarray(value)
    if computed.shape != expected.shape:
        return Line(name, f"shape {computed.shape}, not {expected.shape}", within=False)
    if tolerance == 0.0:
        same = bool(np.array_equal(computed, expected))
        return Line(name, "equal" if same else "differs", within=same)
    a, b = computed.astype(np.float64), expected.astype(np.float64)
    within = bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
    difference = np.abs(np.where(np.isnan(b), 0.0, a - b)).max(initial=0.0)
    return Line(name, f"largest difference {difference:.1e}", within=within)


def main(arguments: list[str]) -> int:
    """Print the comparison of the folder named by the only argument; return the exit status."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tests.golden.audits DIR   (with privacy.npz and tests.npz)", file=sys.stderr)
        return 2
    lines: list[Line] = []
    for name, (recompute, not_computed) in SETS.items():
        with np.load(Path(arguments[0]) / f"{name}.npz", allow_pickle=False) as file:
            stored = {key: file[key] for key in file.files}
        lines += compared(stored, recompute, not_computed)
    for line in lines:
        mark = "   BEYOND TOLERANCE" if line.within is False else ""
        print(f"{line.name:56} {line.verdict}{mark}")
    beyond = sum(line.within is False for line in lines)
    skipped = sum(line.within is None for line in lines)
    print(
        f"{len(lines) - skipped} values compared, {beyond} beyond tolerance, {skipped} of nothing that Lethe computes"
    )
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
