"""Networks of the library transformers from folders: `save_pretrained`'s, and LoRA adapters'."""

import json
from pathlib import Path
from typing import Any

import torch

from lethe.data.text_errors import InvalidLanguageModel
from lethe.networks.builders import build
from lethe.networks.transformers_network import NAME, TransformersNetwork, context_of

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"


def load_transformers(folder: Path) -> TransformersNetwork:
    """Return the network of a folder, in float32, with the weights of a LoRA adapter merged.

    The base model of an adapter lies beside the folder. Raises InvalidLanguageModel if the folder cannot be read, holds
    pickles, needs code of its own, is of an architecture that is not built here, or of more parameters than this
    process builds, before any weight is read.
    """
    try:
        from lethe.huggingface.errors import InvalidModelFolder  # noqa: PLC0415 - the extra `hf` may be absent
        from lethe.huggingface.model_folder import load_language_model  # noqa: PLC0415
    except ImportError as error:
        raise InvalidLanguageModel(
            f"folders are read by transformers: install lethe-unlearning[hf] ({error})"
        ) from error
    try:
        config = _json(_base(folder) / CONFIG)
        with torch.device("meta"):  # counts the parameters, and takes no memory
            build({"task": "causal-lm", "name": NAME, "options": {"config": config, "context": context_of(config)}})
        loaded = load_language_model(folder, dtype="float32").network
        network = TransformersNetwork(config)
        network.load_state_dict({f"model.{name}": tensor for name, tensor in loaded.state_dict().items()})
    except (InvalidModelFolder, OSError, ValueError, RuntimeError) as error:
        said = str(error).replace(str(folder.parent), "")  # where the host keeps it is not the organiser's business
        raise InvalidLanguageModel(f"{folder.name}: {said}") from error
    return network


def _base(folder: Path) -> Path:
    """Return the folder itself, or that of its base model. Raises ValueError for a base that lies elsewhere."""
    if not (folder / ADAPTER_CONFIG).is_file():
        return folder
    named = Path(str(_json(folder / ADAPTER_CONFIG).get("base_model_name_or_path")))
    if (folder / named).resolve().parent != folder.resolve().parent:
        raise ValueError(f"{ADAPTER_CONFIG} names the base model {str(named)!r}; allowed is ../FOLDER, beside it")
    return folder / named


def _json(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text("utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds {type(found).__name__}; allowed is an object")  # noqa: TRY004
    return found
