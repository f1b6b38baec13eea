"""What a local check evaluates by: the sample, as the server would evaluate on the hidden sets."""

from pathlib import Path

import pytest
import safetensors.torch

from lethe.data.files import read_tensors
from lethe.evaluation.evaluators import sample_evaluator
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import competition

pytestmark = pytest.mark.usefixtures("trusted_network_source")

LOOKS_UP = """
import torch
from torch import nn
class Ordered(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("order", torch.arange(n))
    def forward(self, x):
        return x.flatten(1)[:, self.order]
def build(input_shape, n_classes):
    n = input_shape[0] * input_shape[1] * input_shape[2]
    return nn.Sequential(Ordered(n), nn.Linear(n, n_classes))
"""


def test_invalid_lookup_positions_of_a_run_are_not_used(tmp_path: Path) -> None:
    network = {"name": "module", "options": {"source": LOOKS_UP}}
    prepare_split(competition(n_models=2, network=network), "public", tmp_path)
    sample = tmp_path / "sample"
    evaluator, state = sample_evaluator(sample), read_tensors(sample / "original_model.safetensors")
    expected = evaluator.evaluate(safetensors.torch.save(state)).confidences.tobytes()
    beyond = state | {"0.order": state["0.order"] + 10**6}
    assert evaluator.evaluate(safetensors.torch.save(beyond)).confidences.tobytes() == expected
    with pytest.raises(IndexError):
        evaluator.evaluate_state(beyond)
