"""The text competition of towns with a model in a folder that transformers' `save_pretrained` wrote."""

from pathlib import Path
from typing import Any

from tests.support.tiny_models import write_model
from tests.support.towns import towns_toml


def folder_toml(root: Path, architecture: str = "llama", *, more: str = "", **settings: Any) -> str:
    """Return a competition whose network and tokenizer are the folder `model.v1` in `root`."""
    write_model(root / "model.v1", architecture)
    toml = towns_toml(root, **{"epochs": 2, "n_models": 4, **settings}).replace(
        "vocabulary = 400", 'tokenizer = "model.v1"'
    )
    toml = toml.replace('schedule = "cosine"', 'schedule = "cosine"\nmin_train_accuracy = 0.001')
    toml = toml.replace('kind = "causal-lm"', f'kind = "causal-lm"\n{more}')
    start, end = toml.index('name = "llama"'), toml.index("[training]")
    return toml[:start] + 'name = "transformers"\noptions = { pretrained = "model.v1" }\n' + toml[end:]
