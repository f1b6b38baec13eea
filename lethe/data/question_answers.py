"""Questions and answers from JSON Lines files.

One object a line: `question`, `answer`; optional `paraphrased_answer`, `perturbed_answer` (wrong answers, a list) and
`group` (whose question it is, such as an author). Other keys are ignored. The names are TOFU's.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.data.errors import InvalidText
from lethe.text_files import read_text


@dataclass(frozen=True)
class QuestionAnswer:
    """One question. paraphrased_answer: the answer in other words. wrong_answers: plausible ones."""

    question: str
    answer: str
    paraphrased_answer: str | None = None
    wrong_answers: tuple[str, ...] = ()
    group: str | None = None


def read_question_answers(path: Path) -> list[QuestionAnswer]:
    """Return the questions of a file, in its order.

    Raises InvalidText, naming file and line, if a line is not a JSON object, or a text is missing, empty or no text.
    """
    return [_question(row, f"{path.name}, line {number}") for number, row in _objects(path)]


def read_refusals(path: Path) -> list[str]:
    """Return answers such as "I don't know", one a line. Raises InvalidText if there is none."""
    refusals = [line.strip() for line in _lines(path) if line.strip()]
    if not refusals:
        raise InvalidText(f"{path.name} holds no answer; expected one a line")
    return refusals


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = _lines(path)
    if not any(line.strip() for line in lines):
        raise InvalidText(f"{path.name} holds no question; expected one JSON object a line")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidText(f"{path.name}, line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise InvalidText(f"{path.name}, line {number} is not a JSON object but {type(row).__name__}")
        yield number, row


def _lines(path: Path) -> list[str]:
    """Return the file's lines. Only newlines end them: JSON may hold what else `splitlines` takes for an end."""
    try:
        return read_text(path).split("\n")
    except (OSError, ValueError) as error:
        raise InvalidText(f"{path.name} cannot be read as UTF-8 text: {error}") from error


def _question(row: dict[str, Any], where: str) -> QuestionAnswer:
    wrong = row.get("perturbed_answer", [])
    if not isinstance(wrong, list):
        raise InvalidText(f"{where}: `perturbed_answer` must be a list of texts, not {wrong!r}")
    paraphrased = row.get("paraphrased_answer")
    group = row.get("group")
    if missing := [key for key in ("question", "answer") if key not in row]:
        raise InvalidText(f"{where} has no key `{missing[0]}`; it has {', '.join(map(repr, row)) or 'none'}")
    return QuestionAnswer(
        question=_filled(row.get("question"), f"{where}: `question`"),
        answer=_filled(row.get("answer"), f"{where}: `answer`"),
        paraphrased_answer=None if paraphrased is None else _filled(paraphrased, f"{where}: `paraphrased_answer`"),
        wrong_answers=tuple(_filled(text, f"{where}: `perturbed_answer` {i}") for i, text in enumerate(wrong)),
        group=None if group is None else str(group),
    )


def _filled(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidText(f"{what} must be a text that is not empty, not {value!r}")
    return value
