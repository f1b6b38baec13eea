"""Arrays of a language model: losses against a plain loop, generation against one that reads everything each time."""

import numpy as np
import pytest
import torch

from lethe.data.datasets.questions import QuestionAnswer
from lethe.data.errors import InvalidText
from lethe.evaluation.text import (
    answer_losses,
    answer_scores,
    answer_statistics,
    confidences,
    generate_greedily,
    question_arrays,
    token_arrays,
    tokenize_questions,
)
from lethe.networks.language_models import Llama
from tests.support.tiny_language import CONTEXT, PERSONS, WordTokenizer, get_tokens, learnt_network, tiny_network

ANSWERS = [get_tokens(person, " ".join(["lives"] * (i % 3) + ["in", "Rome"])) for i, person in enumerate(PERSONS)]


@pytest.fixture(scope="module")
def learnt() -> Llama:
    return learnt_network()


def plain_statistics(network: Llama, tokens: tuple[int, ...], start: int) -> tuple[list[float], list[bool]]:
    with torch.no_grad():
        log_p = network(torch.tensor([tokens]))[0].log_softmax(-1)
    places = range(start, len(tokens))
    return [float(log_p[t - 1, tokens[t]]) for t in places], [int(log_p[t - 1].argmax()) == tokens[t] for t in places]


def test_answer_losses_equal_a_plain_loop() -> None:
    network = tiny_network()
    expected = [-np.mean(plain_statistics(network, one.tokens, one.answer_start)[0]) for one in ANSWERS]
    for batch_size in (1, 3, 8):
        assert answer_losses(network, ANSWERS, padding_id=1, batch_size=batch_size) == pytest.approx(expected, abs=1e-5)


def test_answer_statistics_equal_a_plain_loop(learnt: Llama) -> None:
    found = answer_statistics(learnt, ANSWERS, padding_id=1, batch_size=3)
    for row, one in enumerate(ANSWERS):
        log_p, correct = plain_statistics(learnt, one.tokens, one.answer_start)
        n = one.answer_tokens
        assert found.scores.n_tokens[row] == n
        assert found.scores.loss[row] == pytest.approx(-np.mean(log_p), abs=1e-5)
        assert found.token_log_probability[row, : n - 1] == pytest.approx(log_p[:-1], abs=1e-5)
        assert found.token_correct[row, : n - 1].tolist() == correct[:-1]
        assert not found.token_log_probability[row, n - 1 :].any()
    alone = answer_scores(learnt, ANSWERS, padding_id=1, batch_size=3)
    assert found.scores.loss.tolist() == alone.loss.tolist()
    assert found.scores.correct.tolist() == alone.correct.tolist()


def test_vocabulary_moments_are_of_log_p() -> None:
    network, one = tiny_network(), ANSWERS[0]
    found = answer_statistics(network, [one], padding_id=1)
    with torch.no_grad():
        log_p = network(torch.tensor([one.tokens]))[0, one.answer_start - 1].double().log_softmax(-1)
    mean = float((log_p.exp() * log_p).sum())
    assert found.token_mean[0, 0] == pytest.approx(mean, abs=1e-5)
    assert found.token_variance[0, 0] == pytest.approx(float((log_p.exp() * (log_p - mean) ** 2).sum()), abs=1e-5)


def plain_generation(network: Llama, prompt: list[int], n_tokens: int) -> list[int]:
    tokens: list[int] = []
    with torch.no_grad():
        while len(tokens) < n_tokens and len(prompt) + len(tokens) < CONTEXT:
            following = int(network(torch.tensor([prompt + tokens]))[0, -1].argmax())
            if following == 1:
                break
            tokens.append(following)
    return tokens


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("seed", [None, 0, 3])
def test_generation_equals_a_plain_loop(learnt: Llama, batch_size: int, seed: int | None) -> None:
    network = learnt if seed is None else tiny_network(seed)
    prompts = [list(one.tokens[: one.answer_start + i % 3]) for i, one in enumerate(ANSWERS)]
    found = generate_greedily(network, prompts, end_id=1, max_new_tokens=9, batch_size=batch_size)
    assert found == [plain_generation(network, prompt, 9) for prompt in prompts]


def test_generation_stops_at_the_context(learnt: Llama) -> None:
    prompt = [2] * (CONTEXT - 2)
    assert len(generate_greedily(learnt, [prompt, [0] * CONTEXT], end_id=99, max_new_tokens=5)[1]) == 0
    assert len(generate_greedily(learnt, [prompt], end_id=99, max_new_tokens=5)[0]) == 2


def test_question_arrays_of_a_learnt_model(learnt: Llama) -> None:
    tokenizer = WordTokenizer()
    questions = tokenize_questions("forget", PERSONS, tokenizer, context=CONTEXT)
    arrays, generated = question_arrays(learnt, questions, tokenizer, max_new_tokens=8)
    assert generated == [person.answer for person in PERSONS]
    assert arrays["forget_rouge_recall"].tolist() == [1.0] * 8
    assert arrays["forget_answer_loss"].max() < 0.2
    assert arrays["forget_wrong_loss"].shape == (8, 2)
    assert (arrays["forget_paraphrased_loss"] > arrays["forget_answer_loss"]).all()
    own = token_arrays("forget", answer_statistics(learnt, questions.answers, padding_id=1))
    assert own["forget_token_correct"].all()
    assert own["forget_token_variance"].shape == (8, 4)
    known = question_arrays(learnt, questions, tokenizer, max_new_tokens=8, answer_loss=arrays["forget_answer_loss"])
    assert {name: array.tolist() for name, array in known[0].items()} == {n: a.tolist() for n, a in arrays.items()}


def test_question_arrays_of_no_questions(learnt: Llama) -> None:
    tokenizer = WordTokenizer()
    arrays, generated = question_arrays(learnt, tokenize_questions("world_facts", [], tokenizer, context=9), tokenizer)
    assert generated == []
    assert {name: array.shape for name, array in arrays.items()} == {
        "world_facts_answer_loss": (0,),
        "world_facts_paraphrased_loss": (0,),
        "world_facts_wrong_loss": (0, 1),
        "world_facts_rouge_recall": (0,),
    }


def test_questions_need_equal_numbers_of_wrong_answers() -> None:
    other = QuestionAnswer(PERSONS[0].question, PERSONS[0].answer)
    with pytest.raises(InvalidText, match=r"forget questions have \[0, 2\] wrong answers"):
        tokenize_questions("forget", [PERSONS[1], other], WordTokenizer(), context=CONTEXT)


def test_confidence_is_higher_for_learnt_answers(learnt: Llama) -> None:
    answers = [get_tokens(person) for person in PERSONS]
    known, unknown = (confidences(answer_losses(net, answers, padding_id=1)) for net in (learnt, tiny_network()))
    assert known.min() > 1 > unknown.max()
