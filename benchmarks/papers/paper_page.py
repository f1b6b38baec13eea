"""What the tables of the papers share: sizes from the command line, the result as JSON, and its page.

A result holds plain numbers, lists and texts; its page is made from nothing else, so that a test can compare them.
"""

import argparse
import inspect
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks" / "papers"
Result = dict[str, Any]
Interval = tuple[float, float]


def run(name: str, measure: Callable[..., Result], page: Callable[[Result], str], description: str | None) -> None:
    """Measure with the sizes of the command line, and write NAME.json and NAME.md."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {size: parameter.default for size, parameter in inspect.signature(measure).parameters.items()}
    for size, default in sizes.items():
        parser.add_argument(f"--{size.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = vars(parser.parse_args())
    out: Path = given.pop("out")
    torch.set_num_threads(1)
    started = time.process_time()
    measured = measure(**given)
    result = {"sizes": given, "cpu_time_s": round(time.process_time() - started, 1), **measured}
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(page(result), encoding="utf-8")


def conditions(name: str, result: Result) -> str:
    """Return how the numbers were made: command, sizes and processor time."""
    words = " ".join(f"--{size.replace('_', '-')} {value}" for size, value in result["sizes"].items())
    return f"`python -m benchmarks.papers.{name} {words}`: {result['cpu_time_s']:.0f} s of one processor."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, the others numbers."""
    lines = [list(heads), ["---", *["---:"] * (len(heads) - 1)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def reached(value: Sequence[float], decimals: int = 1) -> str:
    """Return a mean with the half width of its 95 % interval."""
    return f"{value[0]:.{decimals}f} ± {value[1]:.{decimals}f}"


def decided(interval: Sequence[float]) -> str:
    """Return what an interval of a difference says of its sign."""
    if interval[0] > 0:
        return "higher"
    return "lower" if interval[1] < 0 else "undecided"
