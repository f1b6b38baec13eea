"""Language models by the name that a competition file uses. `net(input_ids, attention_mask)` returns logits.

Imports the standard library and torch only.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from lethe.networks.gpt2 import Gpt2, Gpt2Shape
from lethe.networks.llama import Llama, LlamaShape
from lethe.networks.transformers_network import NAME, TransformersNetwork

SIZES = ("width", "layers", "heads", "hidden_width", "context")


def build_language_model(network: Mapping[str, Any]) -> nn.Module:
    """Return the untrained network of network.json: {"name", "vocabulary_size", "options": its sizes}.

    One of the library transformers has the options "config", its config.json, and "context".
    Raises ValueError naming the wrong value and what is allowed.
    """
    name, options = network["name"], dict(network.get("options") or {})
    if name == NAME:
        if not isinstance(options.get("config"), Mapping):
            raise ValueError(f"network {name!r} needs the option 'config', an object as config.json holds it")
        return TransformersNetwork(options["config"])
    if name not in SHAPES:
        raise ValueError(f"unknown language model {name!r}: allowed are {', '.join((*SHAPES, NAME))}")
    unknown = sorted(set(options) - set(SIZES))
    missing = [size for size in SIZES if size not in options]
    if unknown or missing:
        what = f"has no option {unknown[0]!r}" if unknown else f"needs the option {missing[0]!r}"
        raise ValueError(f"network {name!r} {what}: its sizes are {', '.join(SIZES)}")
    wrong = [size for size in SIZES if type(options[size]) is not int or options[size] < 1]
    if wrong:
        raise ValueError(f"{wrong[0]} of network {name!r} must be a whole number of at least 1")
    make, shape = SHAPES[name]
    built: nn.Module = make(shape(vocabulary_size=int(network["vocabulary_size"]), **options))
    return built


SHAPES: dict[str, tuple[Any, Any]] = {"llama": (Llama, LlamaShape), "gpt2": (Gpt2, Gpt2Shape)}
