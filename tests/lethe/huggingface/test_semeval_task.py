"""SemEval-2025 task 4: the parts that a model gives, and their aggregate as the organisers' own script has it."""

import json
from pathlib import Path

import numpy as np
import pytest

from lethe.huggingface import semeval_task
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.results import InvalidTaskData
from lethe.huggingface.semeval_task import MIN_MMLU, Continuation, SemevalData, evaluate_semeval, semeval_scores
from tests.support.tiny_models import write_model

CHOICES = {"question": "Who?", "choices": ["Mara", "Quill"], "answer": 1, "subject": "high_school_law"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_language_model(write_model(tmp_path_factory.mktemp("model"), "llama"))


def test_mmlu_has_the_subject_and_five_examples_before_the_question(model, monkeypatch):
    seen = []
    monkeypatch.setattr(
        semeval_task, "correct_choices", lambda _, encoded, rows: seen.extend(encoded) or semeval_task.np.ones(1)
    )
    data = SemevalData([], [], [], [], [CHOICES], [{**CHOICES, "question": f"Which {i}?"} for i in range(6)])
    semeval_task._mmlu(model, data)
    first, second = seen[0]
    header = "The following are multiple choice questions (with answers) about  high school law.\n\n"
    examples = "".join(f"Which {i}?\nA. Mara\nB. Quill\nAnswer: B\n\n" for i in range(5))
    assert model.tokenizer.decode(first.prompt) == f"{header}{examples}Who?\nA. Mara\nB. Quill\nAnswer:"
    assert [model.tokenizer.decode(each.ids[each.start :]).strip() for each in (first, second)] == ["A", "B"]
    monkeypatch.setattr(semeval_task, "MAX_PROMPT_LENGTH", len(first.prompt) - 1)
    seen.clear()
    semeval_task._mmlu(model, data)
    assert "Which 3?" in model.tokenizer.decode(seen[0][0].prompt)
    assert "Which 4?" not in model.tokenizer.decode(seen[0][0].prompt)


def test_aggregate_is_made_of_what_the_model_writes_and_its_losses(model, monkeypatch):
    written = {"Who?": "Mara Quill wrote.", "Where?": "in lagos "}
    monkeypatch.setattr(
        semeval_task,
        "generate",
        lambda _, prompts, **__: [semeval_task_text(written[model.tokenizer.decode(each.prompt)]) for each in prompts],
    )
    rows = [
        {"id": "0sc1", "task": "Task1", "input": "Who?", "output": "Mara Quill wrote the book."},
        {"id": "0qa0", "task": "Task1", "input": "Where?", "output": "In Lagos"},
    ]
    documents = [{"document": text} for text in ("Mara Quill wrote the book.", "Her father is a judge.")]
    data = SemevalData(rows, rows[::-1], documents[:1], documents[1:], [CHOICES], [])
    found = evaluate_semeval(model, data).values()
    answers = [Continuation(row["id"], row["task"], row["output"], written[row["input"]]) for row in rows]
    expected = semeval_scores(
        answers, answers, member_losses=[0.0], nonmember_losses=[2 * found["membership_auc"] - 1], mmlu=found["mmlu"]
    )
    assert found["retain_Task1_regurgitation"] == pytest.approx(3 / 5)
    assert found["forget_Task1_knowledge"] == 0  # one minus the exact match
    assert found["membership_auc"] in (0.0, 1.0)
    assert found["task_aggregate"] == expected.task_aggregate == 0
    assert found["aggregate"] == pytest.approx(expected.aggregate)


def semeval_task_text(text):
    return type("Text", (), {"text": text})


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
