"""A progress bar, in a terminal and in a notebook."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def tracked(items: Sequence[T], *, progress: bool | None, what: str = "evaluating") -> Iterable[T]:
    """Return the items, with a bar on standard error. progress: None shows it where somebody looks on."""
    shown = sys.stderr.isatty() or "ipykernel" in sys.modules if progress is None else progress
    return _with_bar(items, what) if shown else items


def _with_bar(items: Sequence[T], what: str) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import track

    console = Console() if "ipykernel" in sys.modules else Console(stderr=True)
    yield from track(items, description=what, console=console)
