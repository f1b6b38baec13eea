"""Python's parser for text that a participant sent, and how deeply it may be nested: less than any reader takes."""

import ast
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

MAX_LEVELS = 200  # ordinary code has 20; a sum of 150 terms has 150


def is_too_deep(tree: ast.AST) -> bool:
    """Return whether a syntax tree has more than MAX_LEVELS levels. Never recurses."""
    level = [tree]
    for _ in range(MAX_LEVELS):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


_ONE_AT_A_TIME = threading.Lock()  # the filters of warnings are the process's; the parser holds the interpreter anyway


@contextmanager
def suppress_syntax_warnings() -> Iterator[None]:
    """Let Python read a participant's text. Its warnings (of an escape like "\\d") quote it, and go to our log."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parse_python(text: str | bytes, *, filename: str = "<unknown>") -> ast.Module:
    """Return the module that the text is, as ast.parse does, without a word of Python's.

    Raises what ast.parse raises: SyntaxError, ValueError, RecursionError, MemoryError.
    """
    with suppress_syntax_warnings():
        return ast.parse(text, filename=filename)
