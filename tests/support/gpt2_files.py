"""A GPT-2-like network as a file in the form in which such networks are published."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from lethe.networks.gpt2 import Gpt2

CONFIG: dict[str, Any] = {
    "vocab_size": 40,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
    "n_positions": 16,
    "activation_function": "gelu_new",
}
LAYERS = {"attn.c_attn": "query_key_value", "attn.c_proj": "attention_output", "mlp.c_fc": "up", "mlp.c_proj": "down"}
NORMS = {"ln_1": "attention_norm", "ln_2": "feed_forward_norm"}


def published_tensors(network: Gpt2) -> dict[str, torch.Tensor]:
    """Return the tensors under their published names; matrices of layers are (inputs, outputs) there."""
    own = network.state_dict()
    found = {"wte.weight": own["embedding.weight"], "wpe.weight": own["positions.weight"]}
    found |= {f"ln_f.{kind}": own[f"norm.{kind}"] for kind in ("weight", "bias")}
    for i in range(len(network.blocks)):
        for name, ours in (LAYERS | NORMS).items():
            for kind in ("weight", "bias"):
                tensor = own[f"blocks.{i}.{ours}.{kind}"]
                transposed = name in LAYERS and kind == "weight"
                found[f"h.{i}.{name}.{kind}"] = tensor.t().contiguous() if transposed else tensor
        found[f"h.{i}.attn.bias"] = torch.ones(1, 1, 16, 16).tril()  # a mask that old files hold
    return found


def write_gpt2(network: Gpt2, folder: Path) -> Path:
    """Write net.safetensors and config.json; return the former's path."""
    shape = network.shape
    sizes = {"vocab_size": shape.vocabulary_size, "n_embd": shape.width, "n_layer": shape.layers, "n_head": shape.heads}
    sizes |= {"n_inner": shape.hidden_width, "n_positions": shape.context}
    (folder / "config.json").write_text(json.dumps(CONFIG | sizes))
    save_file(published_tensors(network), folder / "net.safetensors")
    return folder / "net.safetensors"
