"""A progress bar, in a terminal and in a notebook."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
LOOK_S = 0.2


def tracked(items: Sequence[T], *, progress: bool | None, what: str = "evaluating") -> Iterable[T]:
    """Return the items, with a bar on standard error. progress: None shows it where somebody looks on."""
    return _with_bar(items, what) if _shown(progress) else items


def _with_bar(items: Sequence[T], what: str) -> Iterator[T]:
    from rich.progress import track

    yield from track(items, description=what, console=_console())


@contextmanager
def files_counted(folder: Path, total: int, *, progress: bool | None, what: str) -> Iterator[None]:
    """Show how many of `total` files another process has written into a folder since the block began."""
    if not _shown(progress):
        yield
        return
    from rich.progress import Progress

    began, ended = time.time(), Event()
    with Progress(console=_console()) as bar:
        task = bar.add_task(what, total=total)

        def look() -> None:
            last = False
            while not last:
                last = ended.wait(LOOK_S)
                bar.update(task, completed=_written_since(folder, began))

        watcher = Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _written_since(folder: Path, began: float) -> int:
    found = folder.iterdir() if folder.is_dir() else ()
    return sum(path.suffix == ".safetensors" and path.stat().st_mtime >= began - LOOK_S for path in found)


def _shown(progress: bool | None) -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules if progress is None else progress


def _console() -> "Console":
    from rich.console import Console

    return Console() if "ipykernel" in sys.modules else Console(stderr=True)
