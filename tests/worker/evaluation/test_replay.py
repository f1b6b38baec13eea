"""What a replay calls equal, and what of a receipt it disputes."""

from copy import deepcopy
from typing import Any

import pytest

from tests.lethe.conftest import competition
from worker.evaluation.replay import Replayed, Stored, differs_from_receipt

SCORE = 0.1
STORED = Stored(
    submission_id="0" * 16,
    visibility="public",
    score=SCORE,
    scorer_version="7",
    content_sha256="c0de",
    manifest_sha256="5911",
    split_device="cpu",
    split_versions={},
    file=competition(),
    shards=(),
)
RECEIPT: dict[str, dict[str, Any]] = {
    "score": {"final_score_bits": SCORE.hex(), "scorer_version": "7"},
    "submission": {"sha256": "c0de"},
    "split": {"manifest_sha256": "5911"},
}


@pytest.mark.parametrize(
    ("score", "different_runs", "expected"),
    [(SCORE, [], True), (0.1 + 2**-56, [], False), (SCORE, [3], False), (None, [], False)],
)
def test_replay_is_equal_to_the_last_bit_of_all(
    score: float | None, different_runs: list[int], *, expected: bool
) -> None:
    assert Replayed(STORED, score=score, different_runs=different_runs).is_equal is expected


@pytest.mark.parametrize(
    ("part", "name", "told"),
    [
        ("score", "final_score_bits", "score"),
        ("score", "scorer_version", "scorer version"),
        ("submission", "sha256", "code"),
        ("split", "manifest_sha256", "split's manifest"),
    ],
)
def test_receipt_that_says_otherwise_is_told(part: str, name: str, told: str) -> None:
    assert differs_from_receipt(STORED, RECEIPT) == []
    receipt = deepcopy(RECEIPT)
    receipt[part][name] = "another"
    [sentence] = differs_from_receipt(STORED, receipt)
    assert sentence.startswith(f"the receipt's {told} is another, stored is ")


def test_rounded_receipt_of_a_team_is_compared_with_the_digits_that_it_has() -> None:
    receipt = deepcopy(RECEIPT)
    receipt["score"] |= {"final_score_bits": None, "final_score": round(SCORE, 5)}
    assert differs_from_receipt(STORED, receipt) == []
    receipt["score"]["final_score"] = round(SCORE, 5) + 1e-5
    [sentence] = differs_from_receipt(STORED, receipt)
    assert sentence.startswith("the receipt's score is ")
