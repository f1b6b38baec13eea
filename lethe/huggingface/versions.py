"""The versions of the libraries that a result depends on."""

import importlib.metadata

VERSIONS_OF = ("torch", "transformers", "tokenizers", "peft", "numpy", "scipy", "scikit-learn", "lm_eval")


def versions() -> dict[str, str]:
    """Return the versions of the libraries that a result depends on."""
    found = {}
    for name in VERSIONS_OF:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
