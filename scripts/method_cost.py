"""The measured time of every method, from docs/methods/cost.md into the methods' docstrings."""

import re
from functools import cache
from pathlib import Path

from lethe.methods.catalogue import FOLDERS, IMAGES

COST = Path(__file__).parents[1] / "docs" / "methods" / "cost.md"
ROW = re.compile(r"\| `(\w+)` \| ([\d.]+) \|")
RETRAINING = re.compile(r"if retraining takes (\d+) epochs")
SECTION = re.compile(r"^Measured: .*\n", re.MULTILINE)


@cache
def measured() -> dict[str, str]:
    """Return what each method's docstring says of its time, by id."""
    text = COST.read_text("utf-8")
    (epochs,) = RETRAINING.findall(" ".join(text.split()))
    return {
        name: f"the time of {found} epochs of finetuning; retraining takes {epochs} (docs/methods/cost.md)."
        for name, found in ROW.findall(text)
    }


def with_measured(source: str, sentence: str | None) -> str:
    """Return a method's file whose docstring says this of its time; without a sentence it says nothing."""
    without = SECTION.sub("", source, count=1)
    line = f"Measured: {sentence}\n" if sentence else ""
    return re.sub(r"^(?=Deterministic: )", line, without, count=1, flags=re.MULTILINE)


def outdated_sources() -> dict[Path, str]:
    """Return the right text of every method's file whose docstring says something else of its time."""
    right = {
        path: with_measured(path.read_text("utf-8"), measured().get(path.stem))
        for path in (FOLDERS[IMAGES] / f"{name}.py" for name in measured())
    }
    return {path: text for path, text in right.items() if text != path.read_text("utf-8")}
