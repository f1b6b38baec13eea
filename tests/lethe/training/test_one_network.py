"""Whatever the network, training, the sandbox and evaluation build the same one from network.json."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lethe.competition.file import Training
from lethe.data.files import write_json, write_tensors
from lethe.data.stored_sets import SET_PATHS, StoredSet
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.metrics.scoring.arrays import logit_scaled_confidences
from lethe.networks.builders import build, to_inputs
from lethe.runtime.data_loaders import load_data
from lethe.training.trainer import ModelTraining, TrainingJob

pytestmark = pytest.mark.usefixtures("trusted_network_source")

OWN = """
from torch import nn

def build(input_shape, n_classes, *, width=4):
    return nn.Sequential(nn.Conv2d(input_shape[0], width, 3), nn.BatchNorm2d(width), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, n_classes))
"""
NETWORKS: dict[str, tuple[str, list[int], dict[str, Any]]] = {
    "an organiser's own": ("module", [2, 12, 12], {"source": OWN, "width": 6}),
    "ResNet-18 on grey pictures": ("resnet18", [1, 32, 32], {}),
    "ResNet-18 with five channels": ("resnet18", [5, 16, 24], {"stem": "small"}),
    "a small transformer": ("vit", [3, 16, 16], {"width": 24, "depth": 2}),
    "TinyViT": ("tiny_vit", [1, 32, 32], {}),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_training_sandbox_and_evaluation_have_one_network(case: str, tmp_path: Path) -> None:
    name, shape, options = NETWORKS[case]
    if name == "tiny_vit":
        pytest.importorskip("timm")
    network = {"name": name, "options": options, "input_shape": shape, "n_classes": 3, "input_scale": 1 / 255}
    numbers = torch.arange(6)
    stored = StoredSet(torch.randint(0, 256, (6, *shape), dtype=torch.uint8), numbers % 3, numbers, numbers)
    recipe = Training(epochs=1, batch_size=3, learning_rate=0.01)
    training = ModelTraining.start(
        TrainingJob.on_device(network, recipe, stored.images, stored.labels, device="cpu"), 1
    )
    training.run_epoch()
    trained = training.state()
    write_json(tmp_path / "visible" / "network.json", network | {"input_shift": 0.0})
    write_tensors(tmp_path / "visible" / "original_model.safetensors", trained)
    for set_name in ("retain", "forget", "validation"):
        stored.write(tmp_path / SET_PATHS[set_name])
    seen = load_data(tmp_path / "visible")
    inside = build(seen.network)
    inside.load_state_dict(seen.original_state)
    with torch.inference_mode():
        logits = inside.eval()(to_inputs(stored.images, seen.network)).numpy()
    expected = logit_scaled_confidences(logits, stored.labels.numpy())
    outputs = SplitEvaluator(network, dict.fromkeys(("retain", "forget", "test"), stored)).evaluate_state(trained)
    assert outputs.confidences == pytest.approx(expected, rel=1e-4, abs=1e-3)  # another network would be off by units
    assert list(inside.state_dict()) == list(trained)
