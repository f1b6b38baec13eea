"""Compare metrics of runs, attacks and certificates with their authors' values: `python -m tests.golden.audits DIR`.

DIR holds privacy.npz and tests.npz. Every stored output is recomputed and compared, or listed as not computed with the
reason. Exit status 1 if a value is beyond its tolerance or belongs to neither.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.golden import audits_of_privacy, audits_of_tests
from tests.golden.check import Comparison, compare_value, print_all

Array = npt.NDArray[Any]
OUTPUT = re.compile(r"(?:(?!_in_(?!order_)).)*_out")  # <section>_in_<what> is an input, though it is called out
Recompute = Callable[[Mapping[str, Array]], Iterator[tuple[str, Any, float]]]
SETS: dict[str, tuple[Recompute, Mapping[str, str]]] = {
    "privacy": (audits_of_privacy.recomputed, audits_of_privacy.NOT_COMPUTED),
    "tests": (audits_of_tests.recomputed, audits_of_tests.NOT_COMPUTED),
}


def compared(
    stored: Mapping[str, Array], recompute: Recompute, not_computed: Mapping[str, str]
) -> Iterator[Comparison]:
    """Yield a line for every stored output, in the order of the names."""
    found = {name: (value, tolerance) for name, value, tolerance in recompute(stored)}
    for name in sorted(name for name in stored if OUTPUT.match(name)):
        if name in found:
            value, tolerance = found[name]
            yield compare_value("", name, np.asarray(value), stored[name], (tolerance, tolerance))
            continue
        reason = next((why for start, why in not_computed.items() if name.startswith(start)), None)
        yield Comparison("", name, reason or "recomputed by nothing", None if reason else False)
    for name in sorted(found.keys() - stored.keys()):
        yield Comparison("", name, "is not in the file", within=False)


def main(arguments: list[str]) -> int:
    """Print the comparison of the folder named by the only argument; return the exit status."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tests.golden.audits DIR   (with privacy.npz and tests.npz)", file=sys.stderr)
        return 2
    lines: list[Comparison] = []
    for name, (recompute, not_computed) in SETS.items():
        with np.load(Path(arguments[0]) / f"{name}.npz", allow_pickle=False) as file:
            stored = {key: file[key] for key in file.files}
        lines += compared(stored, recompute, not_computed)
    return print_all(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
