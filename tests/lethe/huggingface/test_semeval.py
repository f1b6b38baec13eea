"""SemEval-2025 task 4's aggregate, with values of the organisers' own script."""

import json
from pathlib import Path

import numpy as np
import pytest

from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.semeval_task import MIN_MMLU, Continuation, semeval_scores

CASES = json.loads((Path(__file__).parent / "semeval_cases.json").read_text("utf-8"))


def scores(case):
    given = CASES[case]["given"]
    forget, retain = ([Continuation(*row) for row in given[part]] for part in ("forget", "retain"))
    members, others = given["member_nll"], given["nonmember_nll"]
    return semeval_scores(forget, retain, member_losses=members, nonmember_losses=others, mmlu=given["mmlu"])


@pytest.mark.parametrize("case", [name for name, entry in CASES.items() if entry["terms"]])
def test_aggregate_is_that_of_the_organisers(case):
    found, expected = scores(case), CASES[case]
    score = np.nan if found.aggregate == -1 else found.membership_score  # the script computes it with all parts only
    parts = [found.task_aggregate, found.membership_auc, score, found.mmlu, found.aggregate]
    np.testing.assert_allclose(found.terms, np.array(expected["terms"], float), rtol=1e-9)
    np.testing.assert_allclose(parts, np.array(expected["scores"], float), rtol=1e-9)
    assert found.is_mmlu_too_low == expected["warns"]


def test_missing_losses_are_named():
    with pytest.raises(InvalidTaskData, match="is NaN"):
        scores("membership_nan")


def test_threshold_itself_passes():
    assert scores("mmlu_at_threshold").mmlu == MIN_MMLU
