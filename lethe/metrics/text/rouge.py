"""ROUGE recall of a generated answer, equal to the package rouge-score 0.1.2 with its stemmer switched on.

Source: Lin, "ROUGE: a package for automatic evaluation of summaries" (2004); TOFU's evaluation (Maini et al. 2024,
section 2.2.1) calls rouge-score with `use_stemmer=True` and keeps the recall.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.invalid_input import InvalidMetricInput

_NOT_IN_A_WORD = re.compile(r"[^a-z0-9]+")
Condition = Callable[[str], bool]
Rule = tuple[str, str, Condition | None]
_IRREGULAR = {
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "innings": "inning",
    "outings": "outing",
    "cannings": "canning",
} | {word: word for word in ("sky", "news", "inning", "outing", "canning", "howe", "proceed", "exceed", "succeed")}


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


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the stem of one word in lower case."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _double_suffix(_first_match(_past(_plural(word)), _FINAL_Y))
    return _final_ll(_final_e(_first_match(_first_match(word, _SUFFIXES), _RESIDUAL_SUFFIXES)))


def _is_consonant(word: str, i: int) -> bool:
    if word[i] == "y":
        return i == 0 or not _is_consonant(word, i - 1)
    return word[i] not in "aeiou"


def _measure(word: str) -> int:
    """Return m of the form [C](VC)^m[V]: how often a vowel is followed by a consonant."""
    kinds = [_is_consonant(word, i) for i in range(len(word))]
    return sum(not before and after for before, after in pairwise(kinds))


def _positive(word: str) -> bool:
    return _measure(word) > 0


def _above_one(word: str) -> bool:
    return _measure(word) > 1


def _ends_short(word: str) -> bool:
    """Say whether the word ends consonant, vowel, consonant (not w, x, y), or is vowel, consonant."""
    kinds = [_is_consonant(word, i) for i in range(len(word))]
    if len(word) == 2:
        return kinds == [False, True]
    return len(word) > 2 and kinds[-3:] == [True, False, True] and word[-1] not in "wxy"


def _first_match(word: str, rules: tuple[Rule, ...]) -> str:
    """Apply the first rule whose suffix fits; if its condition fails, the word stays."""
    for suffix, replacement, condition in rules:
        if word.endswith(suffix):
            rest = word[: len(word) - len(suffix)]
            return rest + replacement if condition is None or condition(rest) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _first_match(word, (("sses", "ss", None), ("ies", "i", None), ("ss", "ss", None), ("s", "", None)))


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _positive(word[:-3]) else word
    for suffix in ("ed", "ing"):
        rest = word.removesuffix(suffix)
        if rest != word and any(not _is_consonant(rest, i) for i in range(len(rest))):
            return _restored(rest)
    return word


def _restored(rest: str) -> str:
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) >= 2 and rest[-1] == rest[-2] and _is_consonant(rest, len(rest) - 1):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_short(rest) else rest


_FINAL_Y: tuple[Rule, ...] = (("y", "i", lambda rest: len(rest) > 1 and _is_consonant(rest, len(rest) - 1)),)


def _positive_rules(pairs: str) -> tuple[Rule, ...]:
    return tuple((old, new, _positive) for old, _, new in (pair.partition(">") for pair in pairs.split()))


_DOUBLE_SUFFIXES: tuple[Rule, ...] = (
    *_positive_rules("ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e ousli>ous"),
    *_positive_rules("ization>ize ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al"),
    *_positive_rules("iviti>ive biliti>ble fulli>ful"),
    ("logi", "log", lambda rest: _positive(rest + "l")),
)
_SUFFIXES = _positive_rules("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
_RESIDUAL_SUFFIXES: tuple[Rule, ...] = (
    *((suffix, "", _above_one) for suffix in ("al", "ance", "ence", "er", "ic", "able", "ible", "ant")),
    *((suffix, "", _above_one) for suffix in ("ement", "ment", "ent")),
    ("ion", "", lambda rest: _above_one(rest) and rest[-1] in "st"),
    *((suffix, "", _above_one) for suffix in ("ou", "ism", "ate", "iti", "ous", "ive", "ize")),
)


def _double_suffix(word: str) -> str:
    if word.endswith("alli") and _positive(word[:-4]):
        return _double_suffix(word[:-2])
    return _first_match(word, _DOUBLE_SUFFIXES)


def _final_e(word: str) -> str:
    rest = word.removesuffix("e")
    if rest == word:
        return word
    m = _measure(rest)
    return rest if m > 1 or (m == 1 and not _ends_short(rest)) else word


def _final_ll(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _above_one(word[:-1]) else word
