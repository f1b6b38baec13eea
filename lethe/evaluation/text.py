"""A language model's arrays: what it makes of the questions of a competition, for the metrics of answers.

Names and shapes are those of the catalogue of arrays, without the axis of runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.data.answer_batches import TokenizedAnswer, tokenize_answer, tokenize_prompt
from lethe.data.errors import InvalidText
from lethe.data.question_answers import QuestionAnswer
from lethe.data.tokenizers import Tokenizer
from lethe.evaluation.answer_losses import AnswerStatistics, answer_losses
from lethe.evaluation.generation import MAX_NEW_TOKENS, generate_greedily
from lethe.metrics.text.answers import logit_scaled
from lethe.metrics.text.rouge import rouge_l_recalls
from lethe.networks.decoder import CausalNetwork

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class QuestionSet:
    """Questions as tokens. paraphrased: the answers themselves where a question has no paraphrase.

    wrong: one list per question, all of one length (0: no truth ratio).
    """

    name: str
    questions: tuple[QuestionAnswer, ...]
    prompts: tuple[list[int], ...]
    answers: tuple[TokenizedAnswer, ...]
    paraphrased: tuple[TokenizedAnswer, ...]
    wrong: tuple[tuple[TokenizedAnswer, ...], ...]


def tokenize_questions(
    name: str, questions: Sequence[QuestionAnswer], tokenizer: Tokenizer, *, context: int
) -> QuestionSet:
    """Return the questions as tokens.

    Raises InvalidText if an answer is empty or too long for the context, or questions differ in their number of wrong
    answers.
    """
    counts = sorted({len(question.wrong_answers) for question in questions})
    if len(counts) > 1:
        raise InvalidText(f"the {name} questions have {counts} wrong answers: each must have the same number")

    def tokens(question: QuestionAnswer, answer: str) -> TokenizedAnswer:
        return tokenize_answer(tokenizer, question.question, answer, context=context)

    return QuestionSet(
        name=name,
        questions=tuple(questions),
        prompts=tuple(tokenize_prompt(tokenizer, question.question) for question in questions),
        answers=tuple(tokens(question, question.answer) for question in questions),
        paraphrased=tuple(tokens(question, question.paraphrased_answer or question.answer) for question in questions),
        wrong=tuple(tuple(tokens(question, text) for text in question.wrong_answers) for question in questions),
    )


def question_arrays(
    network: CausalNetwork,
    questions: QuestionSet,
    tokenizer: Tokenizer,
    *,
    max_new_tokens: int = MAX_NEW_TOKENS,
    answer_loss: npt.NDArray[np.float64] | None = None,
) -> tuple[Arrays, list[str]]:
    """Return losses and ROUGE recalls of one set, and the generated answers.

    answer_loss: of the set's answers, where it is known. Keys: `<name>_answer_loss`, `_paraphrased_loss` (n,),
    `_wrong_loss` (n, n_wrong), `_rouge_recall` (n,). A set without questions gives empty arrays, which metrics read as
    "n/a without pretraining".
    """
    name, n = questions.name, len(questions.questions)
    generated = generated_answers(network, questions, tokenizer, max_new_tokens=max_new_tokens)
    padding_id = tokenizer.end_id
    if answer_loss is None:
        answer_loss = answer_losses(network, questions.answers, padding_id=padding_id)
    paraphrased_loss = answer_loss
    if questions.paraphrased != questions.answers:
        paraphrased_loss = answer_losses(network, questions.paraphrased, padding_id=padding_id)
    wrong = [answer for answers in questions.wrong for answer in answers]
    n_wrong = len(questions.wrong[0]) if n else 1
    arrays: Arrays = {
        f"{name}_answer_loss": answer_loss,
        f"{name}_paraphrased_loss": paraphrased_loss,
        f"{name}_wrong_loss": answer_losses(network, wrong, padding_id=padding_id).reshape(n, n_wrong),
        f"{name}_rouge_recall": rouge_l_recalls([question.answer for question in questions.questions], generated),
    }
    return arrays, generated


def generated_answers(
    network: CausalNetwork, questions: QuestionSet, tokenizer: Tokenizer, *, max_new_tokens: int = MAX_NEW_TOKENS
) -> list[str]:
    """Return the network's own answers to the questions, generated greedily."""
    tokens = generate_greedily(network, questions.prompts, end_id=tokenizer.end_id, max_new_tokens=max_new_tokens)
    return [tokenizer.decode(ids) for ids in tokens]


def token_arrays(name: str, found: AnswerStatistics) -> Arrays:
    """Return what memorisation and membership attacks need of the answers of a set.

    Keys: `<name>_token_correct`, `_token_log_probability`, `_token_mean`, `_token_variance` (n, L).
    """
    return {
        f"{name}_token_correct": found.token_correct,
        f"{name}_token_log_probability": found.token_log_probability,
        f"{name}_token_mean": found.token_mean,
        f"{name}_token_variance": found.token_variance,
    }


def confidences(forget_answer_loss: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the statistic h of every forgotten answer that the epsilon score compares, shape as given.

    It is log(p / (1 - p)) of the answer probability per token, p = exp(-loss), in the place of an image's true class.
    """
    return logit_scaled(forget_answer_loss)
