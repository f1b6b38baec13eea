"""A text competition whose models start from a published network like GPT-2."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from lethe.competition.file import parse_competition
from lethe.data.datasets.questions import open_questions
from lethe.data.files import read_json
from lethe.evaluation.evaluators import load_evaluator
from lethe.networks.gpt2 import Gpt2, Gpt2Shape
from lethe.preparation.prepare import prepare_split
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from tests.support.gpt2_files import write_gpt2
from tests.support.towns import towns_toml, write_towns


def gpt2_toml(root: Path) -> str:
    """Return a competition whose network and tokenizer are files in `root`."""
    toml = towns_toml(root, epochs=2, n_models=2)
    dataset = open_questions(parse_competition(toml).dataset)
    dataset.write_tokenizer(root / "tokenizer.json")
    torch.manual_seed(0)
    write_gpt2(Gpt2(Gpt2Shape(dataset.tokenizer.vocabulary_size, 32, 1, 2, 64, 64)), root)
    toml = toml.replace("vocabulary = 400", 'tokenizer = "tokenizer.json"')
    toml = toml.replace('schedule = "cosine"', 'schedule = "cosine"\nmin_train_accuracy = 0.001')
    start, end = toml.index('name = "llama"'), toml.index("[training]")
    return toml[:start] + 'name = "gpt2"\noptions = { pretrained = "net.safetensors" }\n' + toml[end:]


def test_a_split_starts_from_the_file(tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    competition = parse_competition(gpt2_toml(root))
    prepare_split(competition, "public", tmp_path / "split")
    network = read_json(tmp_path / "split" / "visible" / "network.json")
    assert (network["name"], network["options"]["width"], network["options"]["context"]) == ("gpt2", 32, 64)
    original = load_file(tmp_path / "split" / "visible" / ORIGINAL_MODEL)
    start = load_file(root / "net.safetensors")
    assert network["vocabulary_size"] < len(start["wte.weight"])
    assert original["embedding.weight"].shape == (network["vocabulary_size"], 32)
    assert not torch.equal(original["blocks.0.up.weight"], start["h.0.mlp.c_fc.weight"].t())
    found = load_evaluator(tmp_path / "split").evaluate_state(original)
    assert np.isfinite(found.confidences).all()
