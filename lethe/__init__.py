"""Machine unlearning: metrics, methods, benchmarks, the competition file, and the client of a competition server.

`lethe.evaluate`, `lethe.score`, `lethe.Split.load`, `lethe.methods.run`, `lethe.unlearn`, `lethe.benchmark` and
`lethe.plots` are for programs; docs/developers/python.md shows them. Names are loaded when they are asked for. What
does not need torch imports without it; networks, data, training and evaluation of checkpoints need the extra `torch`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.3.0.dev0"

_NAMES = {  # `__init__.pyi` gives their types
    "Evaluation": "api.evaluation",
    "MethodRuns": "api.method_runs",
    "ScoreResult": "api.score_result",
    "Split": "api.split",
    "BenchmarkResult": "api.benchmark_result",
    "evaluate": "api.evaluation",
    "score": "api.score_result",
    "unlearn": "huggingface.unlearning",
}
_MODULES = ("benchmark", "loggers", "methods", "metrics", "plots")

__all__ = [  # noqa: PLE0604  names and not objects, as they are not loaded yet
    *_NAMES,
    *_MODULES,
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for."""
    if name in _NAMES:
        return getattr(import_module(f"lethe.{_NAMES[name]}"), name)
    if name in _MODULES:
        return import_module(f"lethe.{name}")
    raise AttributeError(f"module 'lethe' has no attribute {name!r}; there are {', '.join(sorted(__all__))}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class CallableModule(ModuleType):
    """A package that is called like the function of its name: `lethe.benchmark(...)`."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        return import_module("lethe.api.benchmark_result").benchmark(*given, **named)


def make_callable(name: str) -> None:
    """Let the package `name` be called. It calls this when it is imported."""
    sys.modules[name].__class__ = CallableModule
