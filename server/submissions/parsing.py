"""Python's parser, for text that a participant sent."""

import ast
import threading
import warnings

_ONE_AT_A_TIME = threading.Lock()  # the filters of warnings are the process's; the parser holds the interpreter anyway


def parse_python(text: str | bytes, *, filename: str = "<unknown>") -> ast.Module:
    """Return the module that the text is, as ast.parse does, without a word of Python's.

    Its warnings (of an escape like "\\d") quote the participant's text, and would go to the server's own log.
    Raises what ast.parse raises: SyntaxError, ValueError, RecursionError, MemoryError.
    """
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, filename=filename)
