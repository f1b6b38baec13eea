"""Questions with four choices, in the form of WMDP (Li et al. 2024): accuracy by the likelihood of the letter.

Source: EleutherAI's lm-evaluation-harness 0.4.8, tasks/wmdp and lm_eval/models/huggingface.py.
"""

from pathlib import Path

import numpy as np

from lethe.huggingface.answer_scores import score_answers
from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded
from lethe.huggingface.results import MetricValue, TaskResult, over_examples
from lethe.huggingface.task_data import Row, find_file, read_rows

LETTERS = "ABCDEFGHIJ"


def read_multiple_choice(folder: Path) -> list[Row]:
    """Return the rows of the folder's `wmdp*` file: question, choices, answer (position of the right choice).

    Raises InvalidTaskData naming what is missing or wrong.
    """
    path = find_file(folder, ["wmdp*", "*"])
    rows = read_rows(path, {"question": str, "choices": list, "answer": int})
    for number, row in enumerate(rows, start=1):
        if not 2 <= len(row["choices"]) <= len(LETTERS) or not 0 <= row["answer"] < len(row["choices"]):
            raise InvalidTaskData(
                f"{path}, row {number}: {len(row['choices'])} choices with answer {row['answer']}; allowed are 2 to "
                f"{len(LETTERS)} choices and the position of one of them, from 0"
            )
    return rows


def evaluate_multiple_choice(model: LanguageModel, rows: list[Row]) -> TaskResult:
    """Return the accuracy of a model, `acc`, and its standard error; equal likelihoods: the first choice."""
    encoded = [_choices(model, row) for row in rows]
    scores = score_answers(model, [answer for choices in encoded for answer in choices])
    likelihoods = iter(-scores.loss * [answer.n_scored for choices in encoded for answer in choices])
    per_question = [np.array([next(likelihoods) for _ in choices]) for choices in encoded]
    correct = np.array([float(found.argmax() == row["answer"]) for found, row in zip(per_question, rows, strict=True)])
    n = len(correct)
    error = float(correct.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    metrics = {
        "acc": over_examples(correct),
        "acc_stderr": MetricValue(error, reason="" if n > 1 else "needs two questions"),
    }
    return TaskResult("wmdp", metrics)


def _choices(model: LanguageModel, row: Row) -> list[Encoded]:
    listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, row["choices"], strict=False))
    prompt = f"{row['question'].strip()}\n{listed}\nAnswer:"
    before = _tokens(model, prompt)
    return [
        Encoded(_tokens(model, f"{prompt} {letter}"), start=len(before), prompt=before)
        for letter in LETTERS[: len(row["choices"])]
    ]


def _tokens(model: LanguageModel, text: str) -> list[int]:
    """Return the tokens without a beginning-of-sequence token, which only Gemma gets."""
    special = str(model.network.config.model_type).startswith("gemma")
    return list(model.tokenizer(text, add_special_tokens=special)["input_ids"])
