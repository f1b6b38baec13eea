"""Fluency of generated texts."""

import math

import numpy as np
import pytest
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from lethe.huggingface.answer_scores import score_answers
from lethe.huggingface.generated_text import clean_text, n_gram_entropy, perplexity
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import PromptFormat, encode_answer
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import InvalidModelFolder
from tests.support.tiny_models import tokenizer, write_model


def test_entropy_by_hand():
    # pairs ab, ba, ab: shares 2/3, 1/3; triples aba, bab: one bit
    pairs = -(2 / 3 * math.log2(2 / 3) + 1 / 3 * math.log2(1 / 3))
    assert n_gram_entropy("a b a b") == pytest.approx((2 / 3 * pairs + 4 / 3 * 1) / 2)
    assert n_gram_entropy("the the the the the") == 0
    assert n_gram_entropy("") == 0


def test_perplexity_is_that_of_the_retain_model(tmp_path):
    model = load_language_model(write_model(tmp_path / "model", "llama"))
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
