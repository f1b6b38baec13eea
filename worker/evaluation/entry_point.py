"""From what the static check found to what the sandbox is asked to call."""

from collections.abc import Mapping
from typing import Any

from sandbox.launcher import EntryPoint


def entry_point(found: Mapping[str, Any], *, sent_as: str = "") -> EntryPoint:
    """Return the sandbox's entry point for the one stored with the submission. sent_as: the upload's name."""
    return EntryPoint(
        file=found["file"],
        function=found["function"],
        style=found["style"],
        keywords=tuple(found["keywords"]),
        sent_as=sent_as,
        program=found.get("program", ""),
    )
