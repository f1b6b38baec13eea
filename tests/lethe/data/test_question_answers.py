"""Questions and answers from files, their batches, and every mistake that such a file can have."""

import json
from pathlib import Path

import pytest
import torch

from lethe.data.answer_batches import pad_answers, tokenize_answer
from lethe.data.datasets.questions import QuestionAnswer, read_question_answers, read_refusals
from lethe.data.errors import InvalidText
from tests.support.tiny_language import PERSONS, REFUSAL, WordTokenizer, answer_loader, get_tokens

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


def test_labels_are_the_answer_and_its_end() -> None:
    tokenizer, answer = WordTokenizer(), get_tokens(PERSONS[0])
    batch = pad_answers([answer, get_tokens(PERSONS[1], "Bo lives")], padding_id=1)
    first = batch["labels"][0]
    assert tokenizer.decode(first[first != -100].tolist()) == PERSONS[0].answer
    assert first[-1] == tokenizer.end_id
    assert (first[: answer.answer_start] == -100).all()
    assert int((first != -100).sum()) == answer.answer_tokens


def test_padding_has_no_mask_and_no_label() -> None:
    batch = pad_answers([get_tokens(PERSONS[0]), get_tokens(PERSONS[1], "Bo")], padding_id=1)
    assert batch["attention_mask"][1].tolist()[-3:] == [0, 0, 0]
    assert batch["labels"][1].tolist()[-3:] == [-100, -100, -100]
    assert batch["input_ids"][1].tolist()[-3:] == [1, 1, 1]


@pytest.mark.parametrize("answer", ["", "  "])
def test_answer_must_not_be_empty(answer: str) -> None:
    with pytest.raises(InvalidText, match="the answer to 'Where does Ada live\\?' is empty"):
        tokenize_answer(WordTokenizer(), PERSONS[0].question, answer, context=20)


def test_answer_must_fit_the_context() -> None:
    with pytest.raises(
        InvalidText, match=r"has 4 tokens and its question 7: with the end token 12, more than .* of 11"
    ):
        tokenize_answer(WordTokenizer(), PERSONS[0].question, PERSONS[0].answer, context=11)


def test_loader_of_a_run_gives_refusals_beside_answers() -> None:
    answers = [get_tokens(person) for person in PERSONS]
    refusals = [get_tokens(person, REFUSAL) for person in PERSONS]
    batch = next(iter(answer_loader(answers, refusals, batch_size=4)))
    labels = batch["idk_labels"][2]
    assert WordTokenizer().decode(labels[labels != -100].tolist()) == REFUSAL
    assert torch.equal(batch["idk_input_ids"][2, :7], batch["input_ids"][2, :7])
