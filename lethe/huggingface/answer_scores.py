"""Losses and token probabilities of encoded answers: batches of similar length, one forward pass each."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded

Floats = npt.NDArray[np.float64]
BATCH_BYTES = 256 * 2**20  # of logits in float32, the largest array of a batch
LEAST_VARIANCE = 1e-6


@dataclass(frozen=True)
class TokenScores:
    """One entry per answer. loss: (n,), mean over all scored tokens, end token included.

    The lists hold one array per answer over its scored tokens without the last: log probabilities, mean and variance
    of the log probability under the model, and whether the token is the most likely one.
    """

    loss: Floats
    log_probability: list[Floats]
    mean: list[Floats]
    variance: list[Floats]
    correct: list[npt.NDArray[np.bool_]]

    @property
    def probability(self) -> Floats:
        return np.exp(-self.loss)


@torch.inference_mode()
def score_answers(model: LanguageModel, answers: Sequence[Encoded]) -> TokenScores:
    """Return the scores of the answers, in their order; a loss without a scored token is NaN.

    Padding is on the right, and every padding token is masked, also within a prompt: where a tokenizer pads with
    its end token, the prompt's end tokens are masked (open-unlearning's collator does the same).
    """
    found: list[tuple[float, Tensor, Tensor, Tensor, Tensor] | None] = [None] * len(answers)
    for rows in _batches(model, answers):
        batch = [answers[row] for row in rows]
        for row, scores in zip(rows, _score_batch(model, batch), strict=True):
            found[row] = scores
        model.on_progress(len(rows))
    scored = [scores for scores in found if scores is not None]
    return TokenScores(
        loss=np.array([scores[0] for scores in scored], np.float64),
        log_probability=[scores[1].double().numpy() for scores in scored],
        mean=[scores[2].double().numpy() for scores in scored],
        variance=[scores[3].double().numpy() for scores in scored],
        correct=[scores[4].numpy() for scores in scored],
    )


def pad(sequences: Sequence[list[int]], padding_id: int, *, left: bool = False) -> tuple[Tensor, Tensor]:
    """Return the sequences as one tensor, and the mask of what is not the padding token."""
    longest = max(map(len, sequences))
    ids = torch.full((len(sequences), longest), padding_id)
    for row, sequence in enumerate(sequences):
        where = slice(longest - len(sequence), longest) if left else slice(len(sequence))
        ids[row, where] = torch.tensor(sequence)
    return ids, (ids != padding_id).long()


def batches_of_similar_length(lengths: Sequence[int], most_tokens: int) -> Iterator[list[int]]:
    """Yield positions, longest first, so that each batch has at most `most_tokens` with its padding (or one row)."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        size = max(1, most_tokens // max(lengths[order[start]], 1))
        yield order[start : start + size]
        start += size


def most_tokens_per_batch(model: LanguageModel) -> int:
    """Return how many tokens fit into a batch by the size of their logits."""
    return max(1, BATCH_BYTES // (4 * int(model.network.config.get_text_config().vocab_size)))


def _batches(model: LanguageModel, answers: Sequence[Encoded]) -> Iterator[list[int]]:
    return batches_of_similar_length([len(answer.ids) for answer in answers], min(most_tokens_per_batch(model), 8192))


def _score_batch(
    model: LanguageModel, batch: Sequence[Encoded]
) -> Iterator[tuple[float, Tensor, Tensor, Tensor, Tensor]]:
    ids, mask = pad([answer.ids for answer in batch], model.padding_id)
    first = max(min(answer.start for answer in batch) - 1, 0)
    settings = {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device), "use_cache": False}
    keeps = "logits_to_keep" in inspect.signature(model.network.forward).parameters
    if keeps:
        settings["logits_to_keep"] = ids.shape[1] - first
    logits = model.network(**settings).logits
    skipped = first if keeps else 0
    for row, answer in enumerate(batch):
        targets = ids[row, answer.start : len(answer.ids)].to(logits.device)
        rows = log_softmax(logits[row, answer.start - 1 - skipped : len(answer.ids) - 1 - skipped].float(), dim=-1)
        yield _statistics(rows, targets)


def _statistics(rows: Tensor, targets: Tensor) -> tuple[float, Tensor, Tensor, Tensor, Tensor]:
    """rows: (tokens, vocabulary) log probabilities that predict `targets`."""
    chosen = rows.gather(1, targets[:, None])[:, 0]
    probabilities = rows.exp()
    mean = (probabilities * rows).sum(-1)
    variance = ((probabilities * rows.square()).sum(-1) - mean.square()).clamp(min=LEAST_VARIANCE)
    correct = rows.argmax(-1) == targets
    loss = float(-chosen.double().mean()) if len(chosen) else float("nan")
    without_last = (values[:-1].cpu() for values in (chosen, mean, variance, correct))
    return (loss, *without_last)  # type: ignore[return-value]
