"""[ranking] of the competition file: what it may name, and what it says of itself."""

from typing import Any

import pytest
from pydantic import ValidationError

from lethe.competition.sections import Ranking
from tests.lethe.conftest import competition

REPORT = {"metrics": ["accuracy_gap", "umia"]}


def test_score_ranks_where_the_file_says_nothing() -> None:
    assert competition().ranking == Ranking(by=("score",))
    assert competition().ranking.in_words == "score"


@pytest.mark.parametrize(("ranking", "said"), [
    ({"by": "klom"}, "'klom' is not among report.metrics; allowed are \"score\", accuracy_gap, umia"),
    ({"by": ["umia", "umia"]}, "by names 'umia' twice"),
    ({"by": []}, "at least 1 item"),
    ({"by": "umia", "combine": "product"}, "'mean', 'harmonic-mean' or 'worst'"),
    ({"min_test_ratio": 1.2}, "less than or equal to 1"),
    ({"max_joint_audit": 0.8}, 'needs "joint_audit" once in report.metrics'),
])  # fmt: skip
def test_ranking_that_cannot_be_is_refused(ranking: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        competition(report=REPORT, ranking=ranking)
    assert said in str(refused.value)


def test_combination_and_gates_are_said_in_words() -> None:
    ranking = {"by": ["score", "umia"], "combine": "worst", "min_retain_ratio": 0.95, "min_test_ratio": 0.9}
    said = competition(report=REPORT, ranking=ranking).ranking.in_words
    assert said == "worst of score, umia with retain ratio of at least 0.95 and test ratio of at least 0.9"
