"""The server and the worker, where this package lies in a checkout or an image of Lethe."""

import sys
from pathlib import Path

import lethe

PACKAGES = ("server", "worker")


def operator_packages() -> list[str]:
    """Return the packages beside this one that have operator commands, with their folder first in the search path."""
    root = Path(lethe.__file__).resolve().parents[1]
    found = [package for package in PACKAGES if (root / package / "cli" / "commands.py").is_file()]
    if found and str(root) not in sys.path[:1]:
        sys.path.insert(0, str(root))
    return found
