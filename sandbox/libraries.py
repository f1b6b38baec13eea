"""Which libraries a run can import, of those that are often asked for."""

from functools import cache
from importlib.util import find_spec

ASKED_FOR = {
    "torch": "torch",
    "torchvision": "torchvision",
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "pandas": "pandas",
    "PIL": "pillow",
    "matplotlib": "matplotlib",
    "tqdm": "tqdm",
    "timm": "timm",
    "einops": "einops",
}


@cache
def installed_libraries() -> tuple[str, ...]:
    """Return the names of the installed ones. A run sees the packages of the interpreter that starts it."""
    return tuple(name for module, name in ASKED_FOR.items() if find_spec(module) is not None)
