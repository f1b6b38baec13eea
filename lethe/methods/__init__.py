"""Unlearning methods, one file each; every file is also a valid submission. `lethe.methods.run(...)` runs one."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Load `run` when it is asked for: it needs what lies above the methods."""
    if name == "run":
        return import_module("lethe.api.method_runs").run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
