"""Attacks after unlearning, on tiny random models."""

import json

import pytest
import torch
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.huggingface.answer_scores import score_answers
from lethe.huggingface.attacks import ATTACKS, PREFIX, AttackSettings, QuestionSets, attack, quantize, with_prefix
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import PromptFormat, encode_answer
from lethe.huggingface.results import InvalidTaskData
from tests.support.tiny_models import write_model

FORGET = [
    ("Who wrote the book?", "Mara Quill wrote the book."),
    ("Who wrote about the sea?", "Mara Quill wrote the book."),
    ("Where was she born?", "In Lagos, in the south."),
    ("Where was Mara Quill born?", "In Lagos, in the south."),
]
RETAIN = [("What does her father do?", "Her father is a judge."), ("And her mother?", "Her mother is a dentist.")]
QUESTIONS = QuestionSets(FORGET, RETAIN, PromptFormat.of)
TRAINING = AttackSettings(learning_rate=3e-2, epochs=4, batch_size=2)


@pytest.fixture
def model(tmp_path):
    return load_language_model(write_model(tmp_path / "model", "llama"))


def loss(model, pairs):
    return score_answers(model, [encode_answer(model, PromptFormat.of(model), *pair) for pair in pairs]).loss


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_lie_on_a_grid_per_output_channel(tmp_path, architecture, bits):
    network = load_language_model(write_model(tmp_path / "model", architecture)).network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    quantize(network, bits=bits)
    changed = [name for name, value in network.state_dict().items() if not torch.equal(value, before[name])]
    assert len(changed) == (14 if architecture == "llama" else 8)
    for name in changed:
        old, new = (
            value[name] if architecture == "llama" else value[name].T for value in (before, network.state_dict())
        )
        spacing = old.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        assert (new / spacing - (new / spacing).round()).abs().max() < 1e-3
        assert ((new - old).abs() <= spacing * 0.5001).all()
    assert not any("embed" in name or "head" in name or "norm" in name or "wte" in name for name in changed)


def test_prefix_is_part_of_the_prompt_and_not_scored(model):
    prompts = PromptFormat.of(model)
    for (question, answer), found in zip(FORGET, with_prefix(model, prompts, FORGET), strict=True):
        plain = encode_answer(model, prompts, question, answer)
        text = model.tokenizer.decode(found.prompt)
        assert text.endswith(PREFIX)
        assert text.startswith(model.tokenizer.decode(plain.prompt))
        assert model.tokenizer.decode(found.ids[found.start :], skip_special_tokens=True).strip() == answer


def test_relearning_brings_back_what_it_was_not_trained_on(model):
    before = loss(model, RETAIN)
    same = QuestionSets([(question, FORGET[0][1]) for question, _ in FORGET], RETAIN, PromptFormat.of)
    points = attack("relearn", model, same, TRAINING)
    assert [point.steps for point in points] == [0, 1, 2, 3, 4]  # two of four questions, in one batch
    assert points[-1].forget_probability > 2 * points[0].forget_probability
    assert points[0].retain_probability == pytest.approx(float(torch.exp(-torch.tensor(before)).mean()))
    assert not model.network.training


def test_finetuning_trains_on_the_retain_set(model):
    points = attack("finetune", model, QUESTIONS, TRAINING)
    assert points[-1].retain_probability > 0.5 > points[0].retain_probability


def test_attacks_without_training_have_two_points(model):
    for name in ("quantize-8", "quantize-4", "prefix"):
        assert [point.steps for point in attack(name, model, QUESTIONS, TRAINING)] == [0, 1]


def test_eight_bits_change_less_than_four(tmp_path):
    moved = {}
    for bits in (8, 4):
        model = load_language_model(write_model(tmp_path / str(bits), "llama"))
        before, after = loss(model, FORGET), (quantize(model.network, bits=bits), loss(model, FORGET))[1]
        moved[bits] = abs(after - before).max()
    assert 0 < moved[8] < moved[4] / 4


@pytest.mark.parametrize("name", ["relearn", "bits"])
def test_impossible_attacks_are_named(model, name):
    with pytest.raises(InvalidTaskData, match=r"too small to relearn|'bits' is not known; allowed are relearn"):
        attack(name, model, QuestionSets(FORGET[:1], RETAIN, PromptFormat.of), TRAINING)


@pytest.mark.slow
def test_command_attacks_a_folder_beside_a_retain_model(tmp_path):
    unlearned, retain = (write_model(tmp_path / name, "llama", seed=seed) for seed, name in enumerate(("u", "r")))
    rows = [
        {
            "question": question,
            "answer": answer,
            "paraphrased_answer": answer,
            "perturbed_answer": ["She wrote.", "No."],
        }
        for question, answer in FORGET
    ]
    data = tmp_path / "data"
    data.mkdir()
    for name in ("forget10_perturbed", "retain_perturbed", "real_authors_perturbed", "world_facts_perturbed"):
        (data / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    out = tmp_path / "out.json"
    arguments = [
        "evaluate",
        "--hf",
        unlearned,
        "--data",
        data,
        "--retain",
        retain,
        "--original",
        retain,
        "--json",
        out,
        "--attack-lr",
        "0.01",
    ]
    chosen = [part for name in ATTACKS for part in ("--attack", name)]
    found = CliRunner().invoke(build_app(), [*map(str, arguments), *chosen])
    assert found.exit_code == 0, found.output
    attacks = json.loads(out.read_text())["attacks"]
    assert attacks.keys() == ATTACKS.keys()
    for name, result in attacks.items():
        assert (
            len(result["models"][0]["points"]) == len(result["retain"]) == (4 if name in ("relearn", "finetune") else 2)
        )
    assert all(result["original"] == result["retain"] for result in attacks.values())  # the same folder
    assert attacks["relearn"]["retain"][0] != attacks["relearn"]["models"][0]["points"][0]
    assert "quantize-8" in found.output
    refused = CliRunner().invoke(build_app(), [*map(str, arguments), "--task", "wmdp", "--attack", "prefix"])
    assert refused.exit_code != 0
