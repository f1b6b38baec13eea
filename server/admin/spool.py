"""Downloads that are on this host's disk before they are sent: a slow reader holds no database connection."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO

PIECE = 1 << 16


def spool(write: Callable[[IO[bytes]], None]) -> Iterator[bytes]:
    """Return piece by piece what `write` writes into a temporary file. It is written when this returns."""
    with ExitStack() as stack:
        file = stack.enter_context(TemporaryFile())
        write(file)
        file.seek(0)
        stack.pop_all()  # closed when it was read, or by nobody's reading it
    return _pieces(file)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece
