"""Prompts, the scores of answers beside open-unlearning's values (locuslab/open-unlearning, d3d7cf9), and texts."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from lethe.huggingface import answer_scores, answer_sets, generated_text
from lethe.huggingface.answer_scores import TokenScores, score_answers
from lethe.huggingface.generated_text import clean_text, generate, n_gram_entropy, perplexity
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import Encoded, PromptFormat, encode_answer, encode_passage
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import InvalidModelFolder, InvalidTaskData
from lethe.huggingface.tofu import UTILITY_PARTS
from tests.support.tiny_models import tokenizer, write_model


def text_of(model, ids):
    return model.tokenizer.decode(ids)


def test_chat_template_with_the_system_prompt(model):
    found = encode_answer(model, PromptFormat.of(model), "Who?", "Mara.")
    assert (
        text_of(model, found.prompt) == "<|system|>You are a helpful assistant.<|end|><|user|>Who?<|end|><|assistant|>"
    )
    assert text_of(model, found.ids[found.start :]) == "Mara.<|end|>"
    assert found.ids.count(model.end_id) == 3  # the template's own end is not doubled


def test_plain_format_ends_once_and_scores_after_the_prompt(model):
    found = encode_answer(model, PromptFormat.of(model, plain=True), "Who?", "Mara.", examples=[("Where?", "There.")])
    assert text_of(model, found.ids) == "Question: Where?\nAnswer: There.\n\nQuestion: Who?\nAnswer: Mara.<|end|>"
    # "Answer: " ends in a blank that is a token of its own, and " Mara" begins with it: its first token is not scored
    assert found.start == len(found.prompt)


def test_gemma_has_no_system_prompt(tmp_path):
    model = load_language_model(write_model(tmp_path, "gemma2"))
    assert PromptFormat.of(model).system_prompt == ""
    assert PromptFormat.of(model, system_prompt="Be short.").system_prompt == "Be short."


def test_a_template_without_a_system_text_is_named_with_what_to_do(tmp_path):
    model = load_language_model(write_model(tmp_path, "llama"))
    model.tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(InvalidModelFolder, match=r"cannot be filled in: no system; .* give --system-prompt ''"):
        encode_answer(model, PromptFormat.of(model), "Who?", "Mara.")
    assert text_of(model, encode_answer(model, PromptFormat.of(model, system_prompt=""), "Who?", "M.").prompt) == "Who?"


def test_passage_without_prefix_never_scores_the_first_token(model):
    found = encode_passage(model, "Mara Quill was born in Lagos.")
    assert found.start == 1


def test_passage_is_cut_after_its_prefix(model):
    found = encode_passage(model, "Quill was born in Lagos, in the south.", prefix="Mara", longest=3)
    assert len(found.ids) == len(found.prompt) + 3
    assert found.start == len(found.prompt)


THINKS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (THINKS, r"it asks with '<think>' where an answered question has 'Mara\.<\|end\|>'"),
        (
            "{% for m in messages if m.role == 'user' %}<|user|>{{ m.content }}{% endfor %}",
            r"the answer 'Mara\.' does not",
        ),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}{{ 'Now: ' }}{% endif %}",
            "it asks with 'Now: '",
        ),
    ],
)
def test_template_that_writes_no_answer_after_its_prompt_is_refused(tmp_path, template, said):
    model = load_language_model(write_model(tmp_path, "llama"))
    model.tokenizer.chat_template = template
    with pytest.raises(InvalidModelFolder, match=said):
        encode_answer(model, PromptFormat.of(model, system_prompt=""), "Who?", "Mara.")


def test_what_is_longer_than_the_positions_is_refused_or_cut(model):
    limited = replace(model)
    limited.network.config.max_position_embeddings, before = 20, model.network.config.max_position_embeddings
    try:
        with pytest.raises(InvalidTaskData, match=r"has \d+ tokens; .* takes at most 20: shorten it"):
            encode_answer(limited, PromptFormat.of(model, plain=True), "Who wrote the book about the sea?" * 3, "Mara.")
        assert len(encode_passage(limited, "Mara Quill was born in Lagos. " * 9, prefix="Mara").ids) == 20
    finally:
        limited.network.config.max_position_embeddings = before


STORED = Path(__file__).parents[2] / "golden" / "open_unlearning"
VALUES = json.loads((STORED / "values.json").read_text())
LLAMA = VALUES["llama_full"]


@pytest.fixture(scope="module")
def per_example() -> dict[str, np.ndarray]:
    with np.load(STORED / "llama_full.npz") as file:
        return dict(file)


@pytest.mark.parametrize(
    ("metric", "right", "wrong", "aggregate"),
    [
        ("forget_truth_ratio", "forget_Q_A_PARA_Prob", "forget_Q_A_PERT_Prob", "closer_to_1_better"),
        ("retain_Truth_Ratio", "retain_Q_A_PARA_Prob", "retain_Q_A_PERT_Prob", "true_better"),
        ("ra_Truth_Ratio", "ra_Q_A_Prob", "ra_Q_A_PERT_Prob", "true_better"),
        ("wf_Truth_Ratio", "wf_Q_A_Prob", "wf_Q_A_PERT_Prob", "true_better"),
    ],
)
def test_truth_ratio_is_the_authors(per_example, metric, right, wrong, aggregate):
    losses = (per_example[f"{name}/avg_loss"] for name in (right, wrong))
    ratios = answer_scores.truth_ratios(*losses, aggregate=aggregate)
    assert ratios == pytest.approx(per_example[f"{metric}/score"], rel=1e-12)
    assert answer_scores.aggregate_truth_ratios(ratios, aggregate=aggregate) == pytest.approx(LLAMA[metric], rel=1e-12)


def test_truth_ratio_by_probabilities_is_the_authors(per_example):
    losses = (per_example[f"forget_Q_A_{name}_Prob/avg_loss"] for name in ("PARA", "PERT"))
    ratios = answer_scores.truth_ratios(*losses, aggregate="prob_mean")
    wanted = VALUES["llama_full@probmean"]["forget_truth_ratio"]
    assert answer_scores.aggregate_truth_ratios(ratios, aggregate="prob_mean") == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("name", ["ra", "wf"])
def test_normalised_probability_is_the_authors(per_example, name):
    found = answer_scores.normalised_probability(
        per_example[f"{name}_Q_A_Prob/prob"], per_example[f"{name}_Q_A_PERT_Prob/prob"]
    )
    assert found == pytest.approx(per_example[f"{name}_Q_A_Prob_normalised/prob"], rel=1e-12)


def test_model_utility_is_the_authors():
    assert answer_scores.model_utility([LLAMA[part] for part in UTILITY_PARTS]) == pytest.approx(LLAMA["model_utility"])


@pytest.mark.parametrize("attack", ["loss", "zlib", "min_k", "min_k_plus_plus", "gradnorm", "reference"])
def test_area_under_curve_is_the_authors(per_example, attack):
    sides = (per_example[f"mia_{attack}/{side}/score"] for side in ("forget", "holdout"))
    assert answer_sets.area_under_curve(*sides) == pytest.approx(LLAMA[f"mia_{attack}"], abs=1e-12)


def test_privacy_leakage_is_the_authors():
    found = answer_sets.privacy_leakage(LLAMA["mia_min_k"], VALUES["llama_retain"]["mia_min_k"])
    assert found == pytest.approx(LLAMA["privleak"], rel=1e-12)


def test_forget_quality_of_equal_ratios_is_one(per_example):
    ratios = per_example["forget_truth_ratio/score"]
    assert answer_scores.forget_quality(ratios, ratios) == 1
    assert answer_scores.forget_quality(ratios, ratios + 10) < 1e-12


@pytest.mark.parametrize(
    ("correct", "strength"),
    [
        ([True, True, True], 1.0),
        ([False, True, True, True], 0.75),
        ([True, False, True, True], 0.5),
        ([True, True, True, False], 0.25),  # never below 1/n
        ([], 0.0),
    ],
)
def test_extraction_strength_by_hand(correct, strength):
    scores = TokenScores(np.zeros(1), [], [], [], [np.array(correct, bool)])
    assert answer_scores.extraction_strength(scores).tolist() == [strength]


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


def test_no_new_token_is_no_text(model):
    answers = [Encoded([5, 6, 7], start=2, prompt=[5, 6])]
    assert generate(model, answers, max_new_tokens=0)[0].text == ""


def test_choices_of_one_token_are_read_once(model):
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


def test_entropy_by_hand():
    # pairs ab, ba, ab: shares 2/3, 1/3; triples aba, bab: one bit
    pairs = -(2 / 3 * math.log2(2 / 3) + 1 / 3 * math.log2(1 / 3))
    assert n_gram_entropy("a b a b") == pytest.approx((2 / 3 * pairs + 4 / 3 * 1) / 2)
    assert n_gram_entropy("the the the the the") == 0
    assert n_gram_entropy("") == 0


def test_perplexity_is_that_of_the_retain_model(model):
    questions, texts = ["Who?", "Where?"], ["Mara Quill.", "In Lagos, in the south."]
    found = perplexity(questions, lambda: texts, Reference({}, lambda: model))
    answers = [encode_answer(model, PromptFormat.of(model), *pair) for pair in zip(questions, texts, strict=True)]
    expected = np.exp(score_answers(model, answers).loss.mean())
    assert found.value == pytest.approx(expected)
    assert perplexity(questions, lambda: pytest.fail("generated"), None).value is None


def test_clean_text_is_the_first_class_of_the_classifier(tmp_path):
    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=320, dim=16, hidden_dim=32, n_layers=1, n_heads=2, num_labels=4)
    classifier = DistilBertForSequenceClassification(config).eval()
    for parameter in classifier.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    classifier.save_pretrained(tmp_path / "classifier")
    words = tokenizer()
    words.pad_token = words.eos_token
    words.save_pretrained(tmp_path / "classifier")
    texts = ["Mara Quill wrote the book about the sea.", "sea sea", "In Lagos."]
    found = clean_text(tmp_path / "classifier", texts, device="cpu")
    with torch.inference_mode():
        expected = [classifier(**words(text, return_tensors="pt")).logits.softmax(-1)[0, 0].item() for text in texts]
    assert found.per_example["score"] == pytest.approx(expected, abs=1e-5)
    assert found.value == pytest.approx(np.mean(expected), abs=1e-5)
    with pytest.raises(InvalidModelFolder, match=r"no config\.json; expected"):
        clean_text(tmp_path, texts, device="cpu")
