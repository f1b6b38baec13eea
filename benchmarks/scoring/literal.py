"""The published program's attacks as it computes them: every threshold against every model, in torch on the CPU.

Written for timing. Like the program it tiles thresholds and confidences into matrices of one float64 per model and
attack, some 3.5 GB at N = 512. With `chunk` right thresholds at a time the same arithmetic stays near the cache, which
shows how much of the program's time is memory.
"""

import numpy as np
import torch

from lethe.metrics.scoring.arrays import Float64

CAP = 50.0


def literal_epsilon(unlearned: Float64, retrained: Float64, *, chunk: int | None = None, delta: float = 1e-5) -> float:
    """Return epsilon of one example; both of shape (n_models,). chunk: right thresholds at a time, None for all."""
    retrained_is_positive = np.median(retrained) > np.median(unlearned)
    pair = (retrained, unlearned) if retrained_is_positive else (unlearned, retrained)
    positive, negative = (torch.from_numpy(np.ascontiguousarray(side)) for side in pair)
    ranges = [float(side.max() - side.min()) for side in (positive, negative)]
    if min(ranges) / max(ranges) < 0.01:
        return CAP
    rates = [_single_rates(positive, negative), *_interval_rates(positive, negative, ranges, chunk)]
    best = 0.0
    for false_negative, false_positive in rates:
        best = max(best, _strongest(false_negative, false_positive, delta))
    return min(best, CAP)


def _single_rates(positive: torch.Tensor, negative: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.cat([positive, negative])
    count = int(torch.ceil((both.max() - both.min()) * 100))
    thresholds = torch.linspace(float(both.min()), float(both.max()), count)[None, :]
    return (
        (positive[:, None] < thresholds).float().mean(0),
        (negative[:, None] >= thresholds).float().mean(0),
    )


def _interval_rates(
    positive: torch.Tensor, negative: torch.Tensor, ranges: list[float], chunk: int | None
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    if ranges[0] >= ranges[1]:
        positive, negative = negative, positive
    width = min(ranges)
    low, high = float(positive.min()) + width - 2.0, float(positive.max()) + 2.0
    rights = np.linspace(low, high, int(np.ceil((high - low) * 100)))
    rates = []
    n_models = positive.shape[0]
    step = rights.size if chunk is None else chunk
    for start in range(0, rights.size, step):
        some = rights[start : start + step]
        left_row = np.concatenate([np.linspace(r - width - 2.0, r - width + 2.0, 400) for r in some])
        left = torch.from_numpy(np.tile(left_row[None, :], (n_models, 1)))
        right = torch.from_numpy(np.tile(np.repeat(some, 400)[None, :], (n_models, 1)))
        inside = []
        for side in (positive, negative):
            tiled = torch.tile(side[:, None], (1, left_row.size))
            inside.append(torch.logical_and(left <= tiled, tiled <= right))
        rates.append((torch.logical_not(inside[0]).float().mean(0), inside[1].float().mean(0)))
    return rates


def _strongest(false_negative: torch.Tensor, false_positive: torch.Tensor, delta: float) -> float:
    fnr, fpr = false_negative.numpy(), false_positive.numpy()
    if np.any((fnr == 0) & (fpr == 0)):
        return float("inf")
    kept = (fnr > 0) & (fpr > 0)
    if not kept.any():
        return 0.0
    with np.errstate(invalid="ignore"):
        first = np.log(1 - delta - fpr[kept]) - np.log(fnr[kept])
        second = np.log(1 - delta - fnr[kept]) - np.log(fpr[kept])
    return float(np.nanmax(np.fmax(first, second)))
