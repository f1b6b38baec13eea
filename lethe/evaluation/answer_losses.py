"""What a language model makes of given answers: losses, and per token what the metrics of answers need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.data.answer_batches import TokenizedAnswer, batches_by_length, pad_answers
from lethe.networks.decoder import Decoder
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
