"""Questions and answers from files, and every mistake that such a file can have."""

import json
from pathlib import Path

import pytest

from lethe.data.errors import InvalidText
from lethe.data.question_answers import QuestionAnswer, read_question_answers, read_refusals

ROW = {"question": "Who?", "answer": "Ada."}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "forget.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return path


def test_questions_are_read_in_order(tmp_path: Path) -> None:
    full = {**ROW, "paraphrased_answer": "It is Ada.", "perturbed_answer": ["Bo.", "Cy."], "group": 7, "other": 1}
    assert read_question_answers(written(tmp_path, ROW, "", full)) == [
        QuestionAnswer("Who?", "Ada."),
        QuestionAnswer("Who?", "Ada.", "It is Ada.", ("Bo.", "Cy."), "7"),
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2 is not JSON"),
        ([1], "line 2 is not a JSON object but list"),
        ({"answer": "a", "q": "b"}, "line 2 has no key `question`; it has 'answer', 'q'"),
        ({"question": "a"}, "line 2 has no key `answer`; it has 'question'"),
        ({"question": None, "answer": "a"}, "line 2: `question` must be a text that is not empty, not None"),
        ({**ROW, "answer": "  "}, "line 2: `answer` must be a text that is not empty, not '  '"),
        ({**ROW, "answer": 5}, "line 2: `answer` must be a text"),
        ({**ROW, "paraphrased_answer": ""}, "line 2: `paraphrased_answer`"),
        ({**ROW, "perturbed_answer": "x"}, "line 2: `perturbed_answer` must be a list"),
        ({**ROW, "perturbed_answer": ["x", ""]}, "line 2: `perturbed_answer` 1"),
    ],
)
def test_questions_name_the_line_at_fault(tmp_path: Path, line: object, sentence: str) -> None:
    with pytest.raises(InvalidText, match=rf"forget\.jsonl, {sentence}"):
        read_question_answers(written(tmp_path, ROW, line))


def test_questions_need_a_file_with_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidText, match="holds no question"):
        read_question_answers(written(tmp_path, "", " "))
    with pytest.raises(InvalidText, match=r"nowhere\.jsonl cannot be read"):
        read_question_answers(tmp_path / "nowhere.jsonl")
    (tmp_path / "latin.jsonl").write_bytes("é".encode("latin-1"))
    with pytest.raises(InvalidText, match="cannot be read as UTF-8"):
        read_question_answers(tmp_path / "latin.jsonl")


def test_only_newlines_end_a_line_of_a_file(tmp_path: Path) -> None:
    rows = [{"question": "Who\u2028is\x85it?", "answer": "A\x1cda."}, ROW]
    path = tmp_path / "forget.jsonl"
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode())  # as some editors begin a file
    assert [one.question for one in read_question_answers(path)] == ["Who\u2028is\x85it?", "Who?"]


def test_refusals_are_lines(tmp_path: Path) -> None:
    assert read_refusals(written(tmp_path, "I don't know.", "", " No idea. ")) == ["I don't know.", "No idea."]
    with pytest.raises(InvalidText, match="holds no answer"):
        read_refusals(written(tmp_path, ""))
