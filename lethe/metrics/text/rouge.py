"""ROUGE recall of a generated answer, equal to the package rouge-score 0.1.2 with its stemmer switched on.

Source: Lin, "ROUGE: a package for automatic evaluation of summaries" (2004); TOFU's evaluation (Maini et al. 2024,
section 2.2.1) calls rouge-score with `use_stemmer=True` and keeps the recall.
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.text.porter_stemmer import stem

_NOT_IN_A_WORD = re.compile(r"[^a-z0-9]+")


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, those of more than three letters stemmed."""
    return [stem(word) if len(word) > 3 else word for word in _NOT_IN_A_WORD.sub(" ", text.lower()).split()]


def common_subsequence_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    Bit i of `ahead` is 0 where the length grows at position i of `first` (Hyyrö 2004): one addition per word of
    `second` in place of a row of the usual table.
    """
    positions: dict[str, int] = {}
    for i, word in enumerate(first):
        positions[word] = positions.get(word, 0) | 1 << i
    ahead = full = (1 << len(first)) - 1
    for word in second:
        matched = ahead & positions.get(word, 0)
        ahead = ((ahead + matched) | (ahead - matched)) & full
    return len(first) - ahead.bit_count()


def rouge_l_recall(truth: str, generated: str) -> float:
    """Return the share of the truth's words that the answer holds in the same order; 0 if either has no word."""
    expected, found = words(truth), words(generated)
    if not expected or not found:
        return 0.0
    return common_subsequence_length(expected, found) / len(expected)


def rouge_l_recalls(truths: Sequence[str], generated: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the ROUGE-L recall of every answer, shape (n_examples,).

    Raises InvalidMetricInput if the two lists differ in length or a truth is empty (no recall is defined).
    """
    if len(truths) != len(generated):
        raise InvalidMetricInput(f"{len(generated)} generated answers for {len(truths)} true answers")
    for i, truth in enumerate(truths):
        if not words(truth):
            raise InvalidMetricInput(f"true answer {i} is empty or has no letter or digit: {truth!r}", example=i)
    return np.array([rouge_l_recall(*pair) for pair in zip(truths, generated, strict=True)], np.float64)
