from dataclasses import replace

import pytest

from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import PromptFormat, encode_answer, encode_passage
from lethe.huggingface.results import InvalidModelFolder, InvalidTaskData
from tests.support.tiny_models import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_language_model(write_model(tmp_path_factory.mktemp("llama"), "llama"))


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
