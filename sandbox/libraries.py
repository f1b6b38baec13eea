"""Which libraries a run can import, of those that are listed for submissions and that code imports by themselves."""

from functools import cache
from pathlib import Path

ASKED_FOR = {
    **{
        name: name
        for name in (
            *("torch", "torchvision", "numpy", "scipy", "pandas", "matplotlib", "seaborn", "tqdm", "timm", "einops"),
            *("torchmetrics", "lightning", "transformers", "tokenizers", "accelerate", "peft", "safetensors"),
            *("sentencepiece", "albumentations", "numba", "networkx", "sympy", "joblib", "requests", "tabulate"),
            *("omegaconf", "wandb", "ipywidgets", "regex", "rich", "psutil", "cloudpickle"),
        )
    },
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "yaml": "pyyaml",
    "IPython": "ipython",
    "pytorch_lightning": "pytorch-lightning",
}


@cache
def installed_libraries(site: Path) -> tuple[str, ...]:
    """Return the names of those in the folder of packages that runs see."""
    return tuple(name for module, name in ASKED_FOR.items() if (site / module / "__init__.py").is_file())
