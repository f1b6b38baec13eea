"""Batches of answers: labels on the answer alone, nothing cut off."""

import pytest
import torch

from lethe.data.answer_batches import pad_answers, tokenize_answer
from lethe.data.errors import InvalidText
from tests.support.tiny_language import PERSONS, REFUSAL, WordTokenizer, answer_loader, get_tokens


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
