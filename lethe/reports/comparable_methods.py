"""Which methods of a benchmark may be ranked against each other: those that were tuned alike, or that none was."""

from collections.abc import Mapping
from typing import Any

from lethe.benchmark.tuned_methods import TUNED, UNTUNED

Content = Mapping[str, Any]


def untuned_methods(content: Content) -> tuple[str, ...]:
    """Return the methods with constants to tune that were not tuned in every cell, in the order of the file."""
    names = [method["name"] for method in content["methods"]]
    return tuple(name for name in names if UNTUNED in _states(content, name))


def left_out(content: Content) -> tuple[str, ...]:
    """Return the methods that are shown and not ranked: the untuned ones, where others were tuned."""
    names = [method["name"] for method in content["methods"]]
    any_tuned = any(TUNED in _states(content, name) for name in names)
    return untuned_methods(content) if any_tuned else ()


def ranking_note(content: Content) -> str:
    """Return what a ranking's title says of the tuning, empty where all methods were tuned."""
    if out := left_out(content):
        return f" (of tuned methods; not ranked, because not tuned: {', '.join(out)})"
    return " (no method was tuned: it says nothing of the methods)" if untuned_methods(content) else ""


def _states(content: Content, name: str) -> set[str]:
    """Return the states of a method's constants over cells; results of version 0.2 were of untuned methods."""
    rows = [cell["rows"][name] for cell in content["cells"].values() if name in cell["rows"]]
    return {row.get("tuning", {}).get("state", UNTUNED) for row in rows}
