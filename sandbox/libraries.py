"""Which libraries a run can import, of those that are often asked for."""

from functools import cache
from pathlib import Path

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
def installed_libraries(site: Path) -> tuple[str, ...]:
    """Return the names of those in the folder of packages that runs see."""
    return tuple(name for module, name in ASKED_FOR.items() if (site / module / "__init__.py").is_file())
