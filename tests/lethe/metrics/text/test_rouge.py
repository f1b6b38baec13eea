"""ROUGE recall: hand-worked pairs, a plain table as oracle, and rouge-score itself where it is installed."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.metrics import InvalidMetricInput
from lethe.metrics.text.rouge import common_subsequence_length, rouge_l_recall, rouge_l_recalls, stem, words

TEXTS = st.text(alphabet="abcdefgh 'eings.é-Y19", max_size=60)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("dies", "die"),
        ("agreed", "agre"),
        ("hopping", "hop"),
        ("falling", "fall"),
        ("filing", "file"),
        ("happy", "happi"),
        ("relational", "relat"),
        ("vietnamization", "vietnam"),
        ("electriciti", "electr"),
        ("adoption", "adopt"),
        ("controll", "control"),
        ("skies", "sky"),
        ("proceed", "proceed"),
        ("is", "is"),
    ],
)
def test_stem_of_known_words(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_words_are_lower_case_and_stemmed() -> None:
    assert words("The Writers' 2nd-best NOVELS: été") == ["the", "writer", "2nd", "best", "novel", "t"]


def test_rouge_counts_words_in_order() -> None:
    assert rouge_l_recall("a b c d", "d c b a") == 0.25


def test_rouge_of_nothing_is_zero() -> None:
    assert rouge_l_recall("a b", "") == rouge_l_recall("", "a b") == 0.0


@given(first=st.text("abc", max_size=12), second=st.text("abc", max_size=12))
def test_subsequence_equals_the_plain_table(first: str, second: str) -> None:
    table = np.zeros((len(first) + 1, len(second) + 1), int)
    for i, j in product(range(len(first)), range(len(second))):
        longer = max(table[i, j + 1], table[i + 1, j])
        table[i + 1, j + 1] = table[i, j] + 1 if first[i] == second[j] else longer
    assert common_subsequence_length(list(first), list(second)) == table[-1, -1]


def test_rouge_names_the_empty_truth() -> None:
    with pytest.raises(InvalidMetricInput, match="true answer 1 is empty"):
        rouge_l_recalls(["a", " ?"], ["a", "b"])


def test_rouge_refuses_unequal_lists() -> None:
    with pytest.raises(InvalidMetricInput, match="1 generated answers for 2 true"):
        rouge_l_recalls(["a", "b"], ["a"])


@pytest.fixture(scope="module")
def scorer() -> Any:
    return pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeL"], use_stemmer=True)


@given(truth=TEXTS, generated=TEXTS)
def test_rouge_equals_rouge_score(scorer: Any, truth: str, generated: str) -> None:
    expected = scorer.score(truth, generated)
    assert rouge_l_recall(truth, generated) == expected["rougeL"].recall
