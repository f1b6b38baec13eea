"""Whether generated texts are language: three measures, each under its own name.

- entropy: bits of a text's pairs and triples of words, weighted 2/3 and 4/3, as RWKU's program has it (Jin et al. 2024,
  eval_fluency.py, after Zhang et al. 2018). A text that repeats itself has little. Words and marks are found by a
  regular expression here, by NLTK there.
- perplexity: of the texts under the retain model.
- gibberish: the probability of a classifier's first class, as open-unlearning's `classification_prob` gives it; its
  classifier is madhurjindal/autonlp-Gibberish-Detector-492513457, whose folder the user names.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from lethe.huggingface.answer_scores import batches_of_similar_length, score_answers
from lethe.huggingface.errors import InvalidModelFolder
from lethe.huggingface.model_folder import require_plain_weights
from lethe.huggingface.prompts import PromptFormat, encode_answer
from lethe.huggingface.reference import Reference
from lethe.huggingface.results import MetricValue, over_examples

WEIGHTS = {2: 2 / 3, 3: 4 / 3}
MAX_TOKENS = 512
_WORD = re.compile(r"\w+|[^\w\s]")


def n_gram_entropy(text: str) -> float:
    """Return the mean over n = 2, 3 of weight times entropy in bits; 0 for a text of fewer than three words."""
    words = _WORD.findall(text)
    return float(np.mean([weight * _entropy(words, n) for n, weight in WEIGHTS.items()]))


def clean_text(folder: Path, texts: Sequence[str], *, device: str) -> MetricValue:
    """Return the mean probability of a classifier's first class.

    Raises InvalidModelFolder if the folder holds no classifier of texts in safetensors.
    """
    require_plain_weights(folder)
    settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **settings)
        classifier = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True, **settings)
    except (OSError, ImportError, ValueError, KeyError, RuntimeError) as error:
        raise InvalidModelFolder(f"{folder} cannot be loaded as a classifier of texts: {error}") from error
    classifier = classifier.to(device).eval()
    scores = np.zeros(len(texts))
    for rows in batches_of_similar_length([len(text) for text in texts], MAX_TOKENS * 64):
        batch = [texts[row] for row in rows]
        given = tokenizer(batch, return_tensors="pt", padding=True, truncation=True, max_length=MAX_TOKENS).to(device)
        with torch.inference_mode():
            scores[rows] = classifier(**given).logits.float().softmax(-1)[:, 0].cpu().numpy()
    return over_examples(scores, generation=list(texts))


def perplexity(
    questions: Sequence[str], texts: Callable[[], Sequence[str]], reference: Reference | None
) -> MetricValue:
    """Return the perplexity of answers to questions under the retain model; `texts` is called where there is one."""
    if reference is None or reference.model is None:
        return MetricValue(None, reason="needs the model that reads the texts: give --retain DIR")
    model = reference.model
    prompts = PromptFormat.of(model)
    answers = [encode_answer(model, prompts, question, text) for question, text in zip(questions, texts(), strict=True)]
    losses = score_answers(model, answers).loss
    return MetricValue(float(np.exp(losses.mean())), {"avg_loss": losses})


def _entropy(words: Sequence[str], n: int) -> float:
    counts = np.array(list(Counter(zip(*(words[i:] for i in range(n)), strict=False)).values()), np.float64)
    shares = counts / max(counts.sum(), 1)
    return float(-(shares * np.log2(shares)).sum())
