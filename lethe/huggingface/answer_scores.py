"""Losses and token probabilities of encoded answers in batches of similar length, and the metrics made of them."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from lethe.huggingface.model_folder import LanguageModel
from lethe.huggingface.prompts import Encoded

Floats = npt.NDArray[np.float64]
BATCH_BYTES = 256 * 2**20  # of logits in float32, the largest array of a batch
PART_BYTES = 32 * 2**20  # of them, whose statistics are computed at once
MIN_VARIANCE = 1e-6


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
    alike: dict[tuple[int, ...], list[int]] = {}  # no last token is read: choices of one token share a pass
    for row, answer in enumerate(answers):
        alike.setdefault((answer.start, *answer.ids[:-1]), []).append(row)
    groups = list(alike.values())
    found: list[_Scores | None] = [None] * len(answers)
    for batch in _batches(model, [answers[group[0]] for group in groups]):
        chosen = [groups[i] for i in batch]
        rows = [row for group in chosen for row in group]
        for row, scores in zip(rows, _score_batch(model, answers, chosen), strict=True):
            found[row] = scores
        model.on_progress(len(rows))
    scored = [scores for scores in found if scores is not None]
    return TokenScores(
        loss=np.array([scores.loss for scores in scored], np.float64),
        log_probability=[scores.statistics[0, :-1] for scores in scored],
        mean=[scores.statistics[1, :-1] for scores in scored],
        variance=[scores.statistics[2, :-1] for scores in scored],
        correct=[scores.statistics[3, :-1] > 0 for scores in scored],
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


def _batches(model: LanguageModel, answers: Sequence[Encoded]) -> Iterator[list[int]]:
    most = max(1, BATCH_BYTES // (4 * int(model.network.config.get_text_config().vocab_size)))  # by logits' size
    return batches_of_similar_length([len(answer.ids) for answer in answers], min(most, 8192))


@dataclass(frozen=True)
class _Scores:
    """statistics: (4, tokens): log probability, its mean and variance under the model, 1 where the most likely."""

    statistics: Floats

    @property
    def loss(self) -> float:
        return float(-self.statistics[0].mean()) if self.statistics.size else float("nan")


def _score_batch(
    model: LanguageModel, answers: Sequence[Encoded], groups: Sequence[Sequence[int]]
) -> Iterator[_Scores]:
    """Yield the scores of the groups' answers in their order. The answers of a group differ in the last token alone."""
    read = [answers[group[0]] for group in groups]
    ids, mask = pad([answer.ids for answer in read], model.padding_id)
    first = max(min(answer.start for answer in read) - 1, 0)
    settings = {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device), "use_cache": False}
    keeps = "logits_to_keep" in inspect.signature(model.network.forward).parameters
    if keeps:
        settings["logits_to_keep"] = ids.shape[1] - first
    logits = model.network(**settings).logits
    scored = [(line, answers[row]) for line, group in enumerate(groups) for row in group]
    lines = torch.cat([torch.full((answer.n_scored,), line) for line, answer in scored])
    skipped = 1 + (first if keeps else 0)
    before = torch.cat([torch.arange(answer.start, len(answer.ids)) for _, answer in scored]) - skipped
    targets = torch.tensor([token for _, answer in scored for token in answer.ids[answer.start :]], dtype=torch.int64)
    size = max(1, PART_BYTES // (4 * logits.shape[-1]))
    each_part = zip(*(torch.split(each.to(logits.device), size) for each in (lines, before, targets)), strict=True)
    parts = [_statistics(logits[line, place].float(), wanted) for line, place, wanted in each_part]
    found = torch.cat(parts, dim=1).double().cpu().numpy()
    ends = np.cumsum([answer.n_scored for _, answer in scored])
    yield from map(_Scores, np.split(found, ends[:-1], axis=1))


def _statistics(logits: Tensor, targets: Tensor) -> Tensor:
    """Return what _Scores holds, of the logits (tokens, vocabulary) that predict `targets`."""
    rows = log_softmax(logits, dim=-1)
    weighted = rows.exp() * rows
    mean = weighted.sum(-1)
    variance = ((weighted * rows).sum(-1) - mean.square()).clamp(min=MIN_VARIANCE)
    chosen = rows.gather(1, targets[:, None])[:, 0]
    return torch.stack([chosen, mean, variance, (rows.argmax(-1) == targets).float()])


SMALL = 1e-10  # added to denominators by open-unlearning
Aggregate = Literal["closer_to_1_better", "true_better", "prob_mean"]


def normalised_probability(correct: Floats, wrong: Floats) -> Floats:
    """Return p / (p + sum of the wrong answers' p). correct: (n,). wrong: (n, k). All are per token."""
    return np.asarray(correct / (correct + wrong.sum(axis=1) + SMALL), np.float64)


def truth_ratios(correct_loss: Floats, wrong_loss: Floats, *, aggregate: Aggregate) -> Floats:
    """Return wrong over right per question, (n,); for "prob_mean" right / (right + wrong).

    Both sides are exp(-mean loss), over the wrong answers (n, k) too.
    """
    means = (loss.mean(axis=tuple(range(1, loss.ndim))) for loss in (correct_loss, wrong_loss))  # of the wrong answers
    right, wrong = (np.exp(-np.asarray(mean, np.float64)) for mean in means)
    if aggregate == "prob_mean":
        return right / (right + wrong + SMALL)
    return wrong / (right + SMALL)


def aggregate_truth_ratios(ratios: Floats, *, aggregate: Aggregate) -> float:
    """Return the mean over questions of min(r, 1/r), of max(0, 1 - r), or of r itself ("prob_mean")."""
    if aggregate == "closer_to_1_better":
        ratios = np.minimum(ratios, 1 / (ratios + SMALL))
    elif aggregate == "true_better":
        ratios = np.maximum(0, 1 - ratios)
    return float(ratios.mean())


def forget_quality(ratios: Floats, retain_ratios: Floats) -> float:
    """Return the p-value of the two-sample Kolmogorov-Smirnov test of truth ratios (TOFU, section 2.2.2)."""
    from scipy.stats import ks_2samp  # noqa: PLC0415 - a second that an evaluation without a retain model need not pay

    return float(ks_2samp(ratios, retain_ratios).pvalue)


def exact_memorization(scores: TokenScores) -> Floats:
    """Return the share of tokens that are the most likely one, without the last; NaN where there is none."""
    return np.array([correct.mean() if len(correct) else np.nan for correct in scores.correct])


def extraction_strength(scores: TokenScores) -> Floats:
    """Return 1 - k/n, k the shortest part after which all tokens are the most likely ones.

    k is at most n - 1, so the value is never below 1/n; 0 where no token is left. The last token is left out.
    """
    return np.array([_extraction_strength(correct) for correct in scores.correct])


def model_utility(parts: list[float]) -> float:
    """Return the harmonic mean of the parts; one zero makes it 0."""
    values = np.array(parts)
    return 0.0 if (values == 0).any() else float(len(values) / (1 / values).sum())


def _extraction_strength(correct: np.ndarray) -> float:
    n = len(correct)
    if n == 0:
        return 0.0
    wrong = np.flatnonzero(~correct)
    k = min(int(wrong[-1]) + 1 if len(wrong) else 0, n - 1)
    return 1 - k / n
