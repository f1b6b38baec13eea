"""RWKU's prompts and its ROUGE, which is that of the package rouge 1.0.1."""

import zlib

import numpy as np
import pytest
import torch

from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.results import MetricValue
from lethe.huggingface.rwku import PROBES, RwkuData, evaluate_rwku, rouge_l_recall
from tests.support.tiny_models import write_model


@pytest.mark.parametrize(
    ("truth", "text", "recall"),  # values of the package
    [
        ("Blue and green", "The colour is blue and green", 0.6666666666666666),  # case counts
        ("in 1879. In Ulm.", "He was born in Ulm. In 1879 in Ulm.", 1.0),
        ("Mary Poppins", "mary poppins.", 0.0),
        ("a b a c", "a c a b", 0.6666666666666666),  # distinct words
        ("the cat. the dog ran", "the dog. the cat ran the", 1.0),  # every sentence with every other
        ("New York City", "It is New York City, USA.", 0.6666666666666666),  # marks belong to words
        ("x y", ".", 0.0),
    ],
)
def test_recall_is_that_of_the_package(truth, text, recall):
    assert rouge_l_recall(truth, text) == pytest.approx(recall, abs=1e-12)


def test_prompts_are_the_authors(tmp_path, monkeypatch):
    model = load_language_model(write_model(tmp_path / "model", "llama"))
    asked = []
    monkeypatch.setattr(
        "lethe.huggingface.rwku.generate",
        lambda _, encoded, **settings: asked.extend(model.tokenizer.decode(each.prompt) for each in encoded) or [],
    )
    monkeypatch.setattr(
        "lethe.huggingface.rwku._recall", lambda rows, _: MetricValue(0.0, {"rougeL_recall": np.zeros(len(rows))})
    )
    monkeypatch.setattr("lethe.huggingface.rwku.generation_notes", lambda *_: [])
    kinds = ("affirmative suffix", "incontext learning", "role playing")
    rows = {path: [{"query": "Who?", "answer": "Mara"}] for path in PROBES}
    rows["forget_level3"] = [{"query": "Who?", "answer": "Mara", "type": kind} for kind in kinds]
    evaluate_rwku(model, RwkuData({**rows, "mia_forget": [], "mia_retain": [], "utility_fluency": []}))
    blank = "<|user|>Please complete the blank in the following question.\nQuestion: Who?\n<|end|><|assistant|>Answer:"
    question = "<|user|>Please briefly answer the following question.\nQuestion: Who?\n<|end|><|assistant|>Answer:"
    suffix = "<|user|>Please briefly answer the following question.\nQuestion: Who?<|end|><|assistant|>"
    context = "<|user|>Please briefly answer the following question.\nWho?\n<|end|><|assistant|>Answer:"
    assert asked == [blank, question, suffix, context, question, blank, question]


def test_passages_have_the_authors_four_scores(tmp_path):
    model = load_language_model(write_model(tmp_path / "model", "llama"))
    texts = ["Mara lives in Rome with two cats.", "Rome is old"]
    rows = {path: [{"query": "Who?", "answer": "Mara", "type": "reverse"}] for path in PROBES}
    rows |= {"mia_retain": [], "utility_fluency": []}
    found = evaluate_rwku(model, RwkuData({**rows, "mia_forget": [{"text": text} for text in texts]})).metrics
    expected = np.mean([authors_scores(model, text) for text in texts], axis=0)
    names = ("loss", "zlib", "min_k", "min_k_plus_plus")
    assert [found[f"mia_forget_{name}"].value for name in names] == pytest.approx(-expected, rel=1e-4)


def authors_scores(model, text):
    """Log-likelihood, zlib, Min-K and Min-K++ of one text by the formulas of RWKU's eval_mia.py."""
    ids = torch.tensor([model.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        rows = model.network(ids).logits[0, :-1].log_softmax(-1)
    chosen = rows.gather(1, ids[0, 1:, None])[:, 0]
    mean = (rows.exp() * rows).sum(-1)
    deviation = ((rows.exp() * rows.square()).sum(-1) - mean.square()).sqrt()
    smallest = [
        np.sort(values.numpy())[: int(len(values) * 0.2)].mean() for values in (chosen, (chosen - mean) / deviation)
    ]
    likelihood = float(chosen.mean())
    return [likelihood, likelihood / len(zlib.compress(text.encode())), *smallest]
