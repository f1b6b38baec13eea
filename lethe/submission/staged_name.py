"""The name that a single Python file has where it runs, and its sender's own name for it."""

from pathlib import PurePath

STAGED_NAME = "submission.py"


def with_own_name(text: str, *, kind: str, filename: str) -> str:
    """Return text about a submission with the sender's name for its only file. Archives and notebooks keep theirs."""
    return text.replace(STAGED_NAME, PurePath(filename).name) if kind == "py" else text
