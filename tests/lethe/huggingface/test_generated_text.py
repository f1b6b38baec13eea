"""Generation in batches is what transformers writes for each prompt alone, wherever a row ends."""

import json

import pytest
import torch

from lethe.huggingface import generated_text
from lethe.huggingface.answer_scores import score_answers
from lethe.huggingface.generated_text import generate
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import Encoded
from tests.support.tiny_models import write_model

PROMPTS = [[5 + (7 * i + k) % 300 for k in range(3 + 5 * i % 17)] for i in range(24)]
NEW_TOKENS = 40


def alone(model, prompt):
    """Return the text of one prompt by the library's own loop."""
    output = model.network.generate(
        torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=model.end_id
    )
    ends = model.network.generation_config.eos_token_id
    tokens = output[0, len(prompt) :].tolist()
    last = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:last]


@pytest.mark.parametrize(
    ("architecture", "more"), [("llama", {}), ("gemma2", {}), ("qwen2", {"repetition_penalty": 1.3})]
)
def test_rows_that_end_early_change_no_other(tmp_path, monkeypatch, architecture, more):
    folder = write_model(tmp_path / "model", architecture)
    config = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**config, **more, "eos_token_id": [0]}))
    model = load_language_model(folder)
    endless = [alone(model, prompt) for prompt in PROMPTS]
    ends = {tokens[3 + 4 * i % 29] for i, tokens in enumerate(endless) if i % 3 and len(tokens) == NEW_TOKENS}
    model.network.generation_config.eos_token_id = [0, *sorted(ends)]
    expected = [alone(model, prompt) for prompt in PROMPTS]
    lengths = sorted(map(len, expected))
    assert lengths[len(lengths) // 2] < NEW_TOKENS, "half of the rows must end early, or nothing is tried"
    monkeypatch.setattr(generated_text, "MAX_ROWS", 12)
    monkeypatch.setattr(generated_text, "FEW", 3)
    rows_read = []
    own = generated_text._call_generate
    monkeypatch.setattr(
        generated_text, "_call_generate", lambda m, ids, *a, **s: rows_read.append(len(ids)) or own(m, ids, *a, **s)
    )
    found = generated_text._generate_tokens(model, PROMPTS, max_new_tokens=NEW_TOKENS)
    assert found == expected
    assert len(rows_read) > 2, "rows that ended must have left"
    assert sum(rows_read) < 3 * len(PROMPTS)


def test_no_new_token_is_no_text(tmp_path):
    model = load_language_model(write_model(tmp_path / "model", "llama"))
    answers = [Encoded([5, 6, 7], start=2, prompt=[5, 6])]
    assert generate(model, answers, max_new_tokens=0)[0].text == ""


def test_choices_of_one_token_are_read_once(tmp_path):
    model = load_language_model(write_model(tmp_path / "model", "llama"))
    answers = [
        Encoded([*PROMPTS[i], 9 + choice], start=len(PROMPTS[i]), prompt=[]) for i in (2, 5) for choice in range(4)
    ]
    read = []
    model.network.register_forward_pre_hook(
        lambda _, __, settings: read.append(len(settings["input_ids"])), with_kwargs=True
    )
    together = score_answers(model, answers).loss
    assert sum(read) == 2
    for answer, loss in zip(answers, together, strict=True):
        assert score_answers(model, [answer]).loss[0] == pytest.approx(loss, abs=1e-6)
    assert len(set(together.tolist())) == 8
