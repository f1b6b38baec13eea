"""Attacks after unlearning, on tiny random models."""

import json

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.huggingface import attacks
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


@pytest.mark.parametrize("name", ["relearn", "bits"])
def test_impossible_attacks_are_named(model, name):
    with pytest.raises(InvalidTaskData, match=r"too small to relearn|'bits' is not known; allowed are relearn"):
        attack(name, model, QuestionSets(FORGET[:1], RETAIN, PromptFormat.of), TRAINING)


def evaluated(*arguments):
    return CliRunner().invoke(build_app(), ["evaluate", *map(str, arguments)])


@pytest.mark.slow
def test_command_attacks_a_folder_beside_a_retain_model(tmp_path, data, models):
    options = ["--hf", models[0], "--data", data("tofu"), "--retain", models[1], "--original", models[1]]
    options += ["--attack-lr", "0.01", "--json", tmp_path / "out.json"]
    found = evaluated(*options, *(part for name in ATTACKS for part in ("--attack", name)))
    assert found.exit_code == 0, found.output
    done = json.loads((tmp_path / "out.json").read_text())["attacks"]
    assert done.keys() == ATTACKS.keys()
    for name, result in done.items():
        n_points = 4 if name in ("relearn", "finetune") else 2
        assert len(result["models"][0]["points"]) == len(result["retain"]) == n_points
        assert result["original"] == result["retain"]  # the same folder
    assert done["relearn"]["retain"][0] != done["relearn"]["models"][0]["points"][0]
    assert "quantize-8" in found.output
    assert evaluated(*options, "--task", "wmdp", "--attack", "prefix").exit_code != 0


def test_diverged_model_is_not_attacked_and_nothing_is_compared_with_one(data, models, diverged):
    found = evaluated("--hf", diverged, "--data", data("tofu"), "--attack", "finetune")
    assert found.exit_code == 3, found.output
    refused = evaluated("--hf", models[0], "--data", data("tofu"), "--retain", diverged)
    assert "cannot be what others are compared with" in str(refused.exception)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_adapter_is_evaluated_and_attacked_like_the_model_that_it_makes(tmp_path, data, models):
    network = AutoModelForCausalLM.from_pretrained(models[0])
    adapted = peft.get_peft_model(network, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(models[0]).save_pretrained(tmp_path / "merged")
    found = []
    for name in ("adapter", "merged"):
        out = tmp_path / f"{name}.json"
        options = ["--data", data("tofu"), "--retain", models[1], "--attack", "relearn", "--json", out]
        assert evaluated("--hf", tmp_path / name, *options).exit_code == 0
        found.append(json.loads(out.read_text()))
    assert found[0]["metrics"] == pytest.approx(found[1]["metrics"], rel=1e-5)
    (adapter,), (merged,) = (each["attacks"]["relearn"]["models"] for each in found)
    for one, other in zip(adapter["points"], merged["points"], strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_attacks_that_are_done_are_not_done_again(tmp_path, data, models, monkeypatch):
    done = []
    attack = attacks.attack

    def once(name, *arguments):
        done.append(name)
        if done == ["prefix", "quantize-8"]:
            raise KeyboardInterrupt
        return attack(name, *arguments)

    monkeypatch.setattr(attacks, "attack", once)
    options = ["--hf", models[0], "--data", data("tofu"), "--attack", "prefix", "--attack", "quantize-8"]
    assert evaluated(*options, "--json", tmp_path / "out.json").exit_code != 0
    assert evaluated(*options, "--json", tmp_path / "out.json").exit_code == 0
    assert done == ["prefix", "quantize-8", "quantize-8"]
    found = json.loads((tmp_path / "out.json").read_text())["attacks"]
    assert [len(each["models"][0]["points"]) for each in found.values()] == [2, 2]
