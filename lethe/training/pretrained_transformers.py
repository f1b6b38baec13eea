"""Networks of the library transformers from folders: `save_pretrained`'s, LoRA adapters', or with a GGUF file."""

import json
from pathlib import Path

from lethe.data.text_errors import InvalidLanguageModel
from lethe.networks.transformers_network import TransformersNetwork, usable_config

CONFIG = "config.json"


def load_transformers(folder: Path) -> TransformersNetwork:
    """Return the network of a folder, in float32, with the weights of a LoRA adapter merged.

    Raises InvalidLanguageModel if the folder cannot be read, holds pickles, needs code of its own, or is of an
    architecture that is not built here.
    """
    from lethe.huggingface.errors import InvalidModelFolder  # noqa: PLC0415 - the extra `hf` may be absent
    from lethe.huggingface.model_folder import load_language_model  # noqa: PLC0415

    try:
        if (folder / CONFIG).is_file():
            usable_config(json.loads((folder / CONFIG).read_text("utf-8")))  # says more than transformers would
        loaded = load_language_model(folder, dtype="float32").network
        network = TransformersNetwork(usable_config(loaded.config.to_dict()))
    except ImportError as error:
        raise InvalidLanguageModel(
            f"a folder is read by transformers: install lethe-unlearning[hf] ({error})"
        ) from error
    except (InvalidModelFolder, OSError, ValueError) as error:
        said = str(error).replace(str(folder), folder.name)  # where the host keeps it is not the organiser's business
        raise InvalidLanguageModel(f"{folder.name}: {said}") from error
    network.load_state_dict({f"model.{name}": tensor for name, tensor in loaded.state_dict().items()})
    return network
