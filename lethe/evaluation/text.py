"""A language model's arrays: its losses and its greedy answers to a competition's questions, for metrics of answers.

Names and shapes are those of the catalogue of arrays, without the axis of runs.

Prompts of similar length share a batch and are padded on the left. A row that has ended leaves the batch as soon as
half of the rows have, so that one long answer does not keep the others computing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.data.datasets.questions import QuestionAnswer
from lethe.data.errors import InvalidText
from lethe.data.question_answers import (
    TokenizedAnswer,
    batches_by_length,
    pad_answers,
    tokenize_answer,
    tokenize_prompt,
)
from lethe.data.tokenizers import Tokenizer
from lethe.metrics.text.answers import logit_scaled
from lethe.metrics.text.rouge import rouge_l_recalls
from lethe.networks.decoder import CausalNetwork, Decoder
from lethe.runtime.answer_loaders import IGNORED_LABEL

Float64 = npt.NDArray[np.float64]


def answer_logits(network: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits of the labelled tokens alone, (m, vocabulary), their labels (m,) and their rows in the batch (m,).

    A `Decoder` computes its output layer for these tokens only: it is the largest part of a small network.
    """
    labels = batch["labels"][:, 1:]
    used = labels != IGNORED_LABEL
    if isinstance(network, Decoder):
        states = network.hidden_states(batch["input_ids"], batch["attention_mask"])
        logits = network.logits(states[:, :-1][used])
    else:
        output = network(batch["input_ids"], batch["attention_mask"])
        logits = getattr(output, "logits", output)[:, :-1][used]
    return logits, labels[used], used.nonzero()[:, 0]


@dataclass(frozen=True)
class AnswerScores:
    """loss: nats per token, (n,). correct: tokens that are the network's first choice, of n_tokens; (n,) each."""

    loss: Float64
    correct: npt.NDArray[np.int64]
    n_tokens: npt.NDArray[np.int64]

    @property
    def token_accuracy(self) -> float:
        """Share of all answers' tokens, their ends included, that are the network's first choice."""
        return int(self.correct.sum()) / int(self.n_tokens.sum())


@dataclass(frozen=True)
class AnswerStatistics:
    """Arrays of one model and n answers. L: the longest answer's tokens without its end; shorter rows end in 0.

    All but scores are of the tokens without the end, (n, L): log probability, whether it is the first choice, and mean
    and variance of log p over the vocabulary, weighted by p.
    """

    scores: AnswerScores
    token_log_probability: npt.NDArray[np.float32]
    token_correct: npt.NDArray[np.bool_]
    token_mean: npt.NDArray[np.float32]
    token_variance: npt.NDArray[np.float32]


@torch.inference_mode()
def answer_scores(
    network: nn.Module, answers: Sequence[TokenizedAnswer], *, padding_id: int, batch_size: int = 32
) -> AnswerScores:
    """Return losses and first choices of the answers, in their order: a fraction of the cost of all statistics."""
    scores = _no_scores(answers)
    for rows, logits, labels, owners in _batches(network, answers, padding_id, batch_size):
        _fill_scores(scores, rows, logits, labels, owners)
    return scores


@torch.inference_mode()
def answer_statistics(
    network: nn.Module, answers: Sequence[TokenizedAnswer], *, padding_id: int, batch_size: int = 32
) -> AnswerStatistics:
    """Return the statistics of the answers, in their order. Their scores are those of `answer_scores`, bit for bit."""
    result = _no_statistics(_no_scores(answers))
    for rows, logits, labels, owners in _batches(network, answers, padding_id, batch_size):
        _fill_scores(result.scores, rows, logits, labels, owners)
        _fill_statistics(result, rows, _token_statistics(logits, labels))
    return result


def answer_losses(
    network: nn.Module, answers: Sequence[TokenizedAnswer], *, padding_id: int, batch_size: int = 32
) -> Float64:
    """Return the loss per token of every answer, nats, shape (n,)."""
    return answer_scores(network, answers, padding_id=padding_id, batch_size=batch_size).loss


def _batches(
    network: nn.Module, answers: Sequence[TokenizedAnswer], padding_id: int, batch_size: int
) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
    """Yield the answers of a batch and its `answer_logits`, in float32. The network is set to `eval()` mode."""
    device = next(network.parameters()).device
    network.eval()
    for rows in batches_by_length([len(answer.tokens) for answer in answers], batch_size):
        batch = pad_answers([answers[row] for row in rows], padding_id=padding_id)
        logits, labels, owners = answer_logits(network, {name: tensor.to(device) for name, tensor in batch.items()})
        yield rows, logits.float(), labels, owners


def _no_scores(answers: Sequence[TokenizedAnswer]) -> AnswerScores:
    n_tokens = np.array([answer.answer_tokens for answer in answers], np.int64)
    return AnswerScores(np.empty(len(answers), np.float64), np.empty(len(answers), np.int64), n_tokens)


def _fill_scores(result: AnswerScores, rows: list[int], logits: Tensor, labels: Tensor, owners: Tensor) -> None:
    per_token = functional.cross_entropy(logits, labels, reduction="none").double()
    sums = torch.zeros(len(rows), dtype=torch.float64, device=logits.device).index_add_(0, owners, per_token)
    result.loss[rows] = sums.cpu().numpy() / result.n_tokens[rows]
    hits = torch.zeros(len(rows), dtype=torch.int64, device=logits.device)
    result.correct[rows] = hits.index_add_(0, owners, (logits.argmax(dim=-1) == labels).long()).cpu().numpy()


def _token_statistics(logits: Tensor, labels: Tensor) -> dict[str, npt.NDArray[np.float32]]:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    mean = (p * log_p).sum(dim=-1)
    statistics = {
        "token_log_probability": log_p.gather(1, labels[:, None])[:, 0],
        "token_correct": log_p.argmax(dim=-1) == labels,
        "token_mean": mean,
        "token_variance": (p * log_p.square()).sum(dim=-1) - mean.square(),
    }
    return {name: values.cpu().numpy() for name, values in statistics.items()}


def _no_statistics(scores: AnswerScores) -> AnswerStatistics:
    shape = (len(scores.n_tokens), int(scores.n_tokens.max()) - 1)
    return AnswerStatistics(
        scores=scores,
        token_log_probability=np.zeros(shape, np.float32),
        token_correct=np.zeros(shape, np.bool_),
        token_mean=np.zeros(shape, np.float32),
        token_variance=np.zeros(shape, np.float32),
    )


def _fill_statistics(result: AnswerStatistics, rows: list[int], of_tokens: dict[str, npt.NDArray[np.float32]]) -> None:
    first = 0
    for row in rows:
        end = first + int(result.scores.n_tokens[row])
        for name, values in of_tokens.items():
            getattr(result, name)[row, : end - first - 1] = values[first : end - 1]
        first = end


MAX_NEW_TOKENS = 200  # as in TOFU's evaluation


@torch.inference_mode()
def generate_greedily(
    network: CausalNetwork,
    prompts: Sequence[Sequence[int]],
    *,
    end_id: int,
    max_new_tokens: int = MAX_NEW_TOKENS,
    batch_size: int = 64,
) -> list[list[int]]:
    """Return the most likely continuation of every prompt, token by token, without its end, in their order.

    A continuation ends before the end token, after `max_new_tokens`, or at the end of the network's context. Equal
    probabilities: the lower token. The result depends on the network, the prompts and `batch_size` alone.
    """
    network.eval()
    found: list[list[int]] = [[] for _ in prompts]
    for rows in batches_by_length([len(prompt) for prompt in prompts], batch_size):
        batch = [prompts[row] for row in rows]
        left = network.context - max(len(prompt) for prompt in batch)
        generated = _generate(network, batch, end_id=end_id, n_tokens=min(max_new_tokens, left))
        for row, tokens in zip(rows, generated, strict=True):
            found[row] = tokens[: tokens.index(end_id)] if end_id in tokens else tokens
    return found


def _generate(network: CausalNetwork, prompts: list[Sequence[int]], *, end_id: int, n_tokens: int) -> list[list[int]]:
    if n_tokens < 1:
        return [[] for _ in prompts]
    input_ids, mask = _padded_on_the_left(prompts, next(network.parameters()).device)
    cache = network.new_cache(rows=len(prompts), capacity=input_ids.shape[1] + n_tokens)
    generated = torch.full((len(prompts), n_tokens), end_id, device=input_ids.device)
    active = torch.arange(len(prompts), device=input_ids.device)
    going_on = torch.ones_like(active, dtype=torch.bool)
    tokens = network.next_logits(input_ids, mask, cache).argmax(dim=-1)
    for step in range(n_tokens):
        generated[active, step] = tokens
        going_on = going_on & (tokens != end_id)
        if not going_on.any() or step == n_tokens - 1:
            break
        if going_on.sum() <= len(active) // 2:
            kept = going_on.nonzero()[:, 0]
            active, tokens, mask, going_on = active[kept], tokens[kept], mask[kept], going_on[kept]
            cache.keep_rows(kept)
        mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
        tokens = network.next_logits(tokens[:, None], mask, cache).argmax(dim=-1)
    return [row.tolist() for row in generated]


def _padded_on_the_left(prompts: list[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    longest = max(len(prompt) for prompt in prompts)
    input_ids = torch.zeros(len(prompts), longest, dtype=torch.int64)  # no real token reads the padding
    mask = torch.zeros(len(prompts), longest, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        input_ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return input_ids.to(device), mask.to(device)


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
