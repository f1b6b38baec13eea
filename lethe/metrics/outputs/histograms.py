"""Entropies and margins of every example: the Streisand effect, outputs side by side, and KLOM."""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field
from scipy.special import rel_entr

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.derived_arrays import entropies
from lethe.metrics.core.registry import Feature, Metric, Need, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult

RESOLUTION = 4000  # divides by the usual numbers of bins


class EntropyHistogramParameters(Parameters):
    """bins: of the histograms, between 0 and log(number of classes); a divisor of 4000."""

    bins: Literal[20, 40, 50, 80, 100] = 40


def entropy_counts(probabilities: Float64) -> Int64:
    """Return how many predictions of every model have an entropy in each of 4000 equal steps up to log(n_classes).

    probabilities: shape (n_models, n_examples, n_classes). Returns shape (n_models, 4000).
    """
    rows = entropies(probabilities)
    largest = np.log(np.shape(probabilities)[2])
    steps = np.clip((rows / largest * RESOLUTION).astype(np.int64), 0, RESOLUTION - 1)
    return np.stack([np.bincount(model, minlength=RESOLUTION) for model in steps])


def entropy_histogram(unlearned: Int64, retrained: Int64, n_classes: int, *, bins: int = 40) -> MetricResult:
    """Return the Kolmogorov-Smirnov statistic between all entropies of the two sides, in [0, 1]; 0 is ideal.

    unlearned, retrained: `entropy_counts` on the forget set, shape (n_models, 4000) each; the numbers of models may
    differ. The statistic is taken at the steps of the counts. table: mean entropies, to half a step.
    arrays: `edges` (bins + 1,), `unlearned` and `retrained` densities (bins,).
    Source: Golatkar et al. 2020, the Streisand effect.
    """
    largest = float(np.log(int(n_classes)))
    shares = {
        side: _shares(counts.sum(axis=0)) for side, counts in (("unlearned", unlearned), ("retrained", retrained))
    }
    distance = np.abs(np.cumsum(shares["unlearned"]) - np.cumsum(shares["retrained"])).max()
    centres = (np.arange(RESOLUTION) + 0.5) * largest / RESOLUTION
    densities = {side: share.reshape(bins, -1).sum(axis=1) * bins / largest for side, share in shares.items()}
    return MetricResult(
        float(distance),
        table={f"{side}_mean_entropy": float(share @ centres) for side, share in shares.items()},
        arrays={"edges": np.linspace(0.0, largest, bins + 1), **densities},
    )


def _shares(counts: Int64) -> Float64:
    """Return the counts as shares of the last axis; without any count 0."""
    return np.asarray(counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1))


_COUNTS = Feature("entropy counts", entropy_counts, ("forget_probabilities",))

ENTROPY_HISTOGRAM = Metric(
    title="Entropy on the forget set",
    function=entropy_histogram,
    needs={
        "unlearned": Need(_COUNTS),
        "retrained": Need(_COUNTS, Side.RETRAINED),
        "n_classes": Need("n_classes", Side.SHARED),
    },
    unit="KS statistic",
    defaults=EntropyHistogramParameters,
    ideal=0.0,
    bounds=(0.0, 1.0),
    resampling=Resampling.MODELS,
    source="Golatkar et al. 2020 (1911.04933), Streisand effect",
    formula="sup_t | F_u(t) - F_r(t) | over the entropies of all models and forget examples, in 4000 steps up to log C",
)


class OutputHistogramParameters(Parameters):
    """bins: per example, common to both sides. tail_percent: left out of the range at each end."""

    bins: int = Field(40, ge=1)
    tail_percent: float = Field(0.5, ge=0.0, lt=50.0)


def output_histograms(
    unlearned: Float64, retrained: Float64, *, bins: int = 40, tail_percent: float = 0.5
) -> MetricResult:
    """Return the mean accuracy of the best one-threshold attack, with the histograms it looks at.

    unlearned, retrained: margins, shapes (n_models, n_examples) each; the numbers of models may differ.
    per_example: the balanced accuracy of the best threshold, in [0.5, 1]. arrays: `edges` (n_examples, bins + 1),
    `unlearned` and `retrained` densities (n_examples, bins), `threshold` (n_examples,). Values outside the pooled
    percentiles fall into the outermost bins.
    Source: Triantafillou et al. 2024, appendix A.12, figure 18.
    """
    u, r = unlearned, retrained
    low, high = np.percentile(np.concatenate([u, r]), [tail_percent, 100.0 - tail_percent], axis=0)
    high = np.where(high > low, high, low + 1.0)
    edges = np.linspace(low, high, bins + 1, axis=1)
    best = [best_threshold(u[:, s], r[:, s]) for s in range(u.shape[1])]
    accuracy = np.array([accuracy for _, accuracy in best])
    return MetricResult(
        float(np.sort(accuracy).mean()),
        per_example=accuracy,
        arrays={
            "edges": edges,
            "unlearned": _densities(u, edges),
            "retrained": _densities(r, edges),
            "threshold": np.array([threshold for threshold, _ in best]),
        },
    )


def best_threshold(unlearned: Float64, retrained: Float64) -> tuple[float, float]:
    """Return the threshold that tells two samples apart best, and its balanced accuracy, in [0.5, 1].

    The accuracy is (1 + the Kolmogorov-Smirnov statistic) / 2; of equal ones the least threshold is taken.
    """
    points = np.unique(np.concatenate([unlearned, retrained]))
    u = np.searchsorted(np.sort(unlearned), points, side="right") / unlearned.size
    r = np.searchsorted(np.sort(retrained), points, side="right") / retrained.size
    best = int(np.argmax(np.abs(u - r)))
    return float(points[best]), float((1.0 + abs(u[best] - r[best])) / 2.0)


def _densities(values: Float64, edges: Float64) -> Float64:
    n_models, n_examples = values.shape
    bins = edges.shape[1] - 1
    width = (edges[:, -1] - edges[:, 0]) / bins
    index = np.clip(np.floor((values - edges[:, 0]) / width), 0, bins - 1).astype(np.int64)
    flat = np.bincount((index + bins * np.arange(n_examples)).ravel(), minlength=bins * n_examples)
    return np.asarray(flat.reshape(n_examples, bins) / (n_models * width[:, None]))


OUTPUT_HISTOGRAMS = Metric(
    title="Histograms of outputs",
    function=output_histograms,
    needs=both_sides("forget_margins"),
    unit="balanced accuracy",
    defaults=OutputHistogramParameters,
    per_example=True,
    bounds=(0.5, 1.0),
    source="Triantafillou et al. 2024 (2406.09073), appendix A.12, figure 18",
    formula="mean_s ( 1 + sup_t | F_u,s(t) - F_r,s(t) | ) / 2, with the densities of both sides in common bins",
    paper_and_code="The paper shows histograms; the number beside them, the best one-threshold attack, is added here.",
)


SHOWN_PERCENTILE = 95


class KlomParameters(Parameters):
    """bins: over the pooled range of an example. clip: margins are cut at +-clip. floor: least share of a bin."""

    bins: int = Field(20, ge=1)
    clip: float = Field(100.0, gt=0.0)
    floor: float = Field(1e-5, gt=0.0)


BLOCK = 128  # examples that are counted together: large intermediate arrays cost more than the counting


def klom(
    unlearned: Float64, retrained: Float64, *, bins: int = 20, clip: float = 100.0, floor: float = 1e-5
) -> MetricResult:
    """Return the 95th percentile over examples of KL(retrained || unlearned), in nats; 0 for equal samples.

    unlearned, retrained: margins, shapes (n_models, n_examples) each; the numbers of models may differ.
    per_example: the divergences; NaN where every retrained margin falls outside the bins, see `binned_divergence`.
    Source: Georgiev et al. 2024, appendix E.1.
    """
    u, r = unlearned, retrained
    return klom_result(binned_divergence(u, r, bins=bins, clip=clip, floor=floor), uncounted=_uncounted(u, r, clip))


def klom_closed(
    unlearned: Float64, retrained: Float64, *, bins: int = 20, clip: float = 100.0, floor: float = 1e-5
) -> MetricResult:
    """Return `klom` with the last bin closed, so that the greatest margin of all is counted."""
    u, r = unlearned, retrained
    return klom_result(binned_divergence(u, r, bins=bins, clip=clip, floor=floor, closed=True))


def klom_result(divergence: Float64, *, uncounted: int = 0) -> MetricResult:
    """Return the percentile of the divergences, with mean and median in the table.

    uncounted: examples in which no unlearned margin is in a bin.
    """
    known = np.sort(divergence[~np.isnan(divergence)])
    lost = divergence.size - known.size
    sentences = {
        f"{lost} examples have no divergence: their retrained margins are all outside the bins": lost,
        f"in {uncounted} of {divergence.size} examples every unlearned margin is the greatest of all, which the "
        "published bins leave out; what is left says nothing (klom_closed counts them)": uncounted,
    }
    notes = tuple(sentence for sentence, number in sentences.items() if number)
    if not known.size:
        return MetricResult(float("nan"), per_example=divergence, notes=notes)
    table = {"mean": float(known.mean()), "median": float(np.median(known)), "undefined": lost, "uncounted": uncounted}
    return MetricResult(float(np.percentile(known, SHOWN_PERCENTILE)), per_example=divergence, table=table, notes=notes)


def binned_divergence(
    unlearned: Float64,
    retrained: Float64,
    *,
    bins: int = 20,
    clip: float = 100.0,
    floor: float = 1e-5,
    closed: bool = False,
) -> Float64:
    """Return KL(retrained || unlearned) of every example, shape (n_examples,), in nats.

    The bins are equal and cover the pooled range. The last one excludes its upper end, as published, so the pooled
    maximum is not counted; `closed` includes it. Where retrained models are and unlearned ones are not, the share is
    `floor`. An example whose margins are all equal has divergence 0. float32 margins are binned in float32.
    """
    low = np.clip(np.minimum(unlearned.min(axis=0), retrained.min(axis=0)), -clip, clip)
    high = np.clip(np.maximum(unlearned.max(axis=0), retrained.max(axis=0)), -clip, clip)
    edges = np.ascontiguousarray(np.linspace(low, high, bins + 1, axis=1))
    p, q = (_shares(_counts(side, edges, clip, closed)) for side in (retrained, unlearned))
    q = np.where(p > 0.0, np.maximum(q, floor), q)
    with np.errstate(invalid="ignore"):
        p = p / p.sum(axis=1, keepdims=True)
        q = q / q.sum(axis=1, keepdims=True)
    divergence = rel_entr(p, q).sum(axis=1)
    return np.where(low == high, 0.0, divergence)


def _uncounted(u: Float64, r: Float64, clip: float) -> int:
    """Return in how many examples all unlearned margins are the pooled maximum, and retrained ones are not."""
    least, greatest = np.clip(u.min(axis=0), -clip, clip), np.clip(r.max(axis=0), -clip, clip)
    below = np.clip(r.min(axis=0), -clip, clip) < least
    return int(((np.clip(u.max(axis=0), -clip, clip) == least) & (greatest <= least) & below).sum())


def _counts(values: Float64, edges: Float64, clip: float, closed: bool) -> Int64:
    """Return how many models are in each bin, shape (n_examples, bins)."""
    below = np.empty(edges.shape, np.int64)
    for start in range(0, len(below), BLOCK):
        some = slice(start, start + BLOCK)
        ordered = np.array(values[:, some].T, order="C")
        np.clip(ordered, -clip, clip, out=ordered)
        ordered.sort(axis=1)
        below[some] = _below(ordered, edges[some])
    counts = np.diff(below, axis=1)
    counts[:, -1] += (len(values) - below[:, -1]) * closed
    return counts


def _below(ordered: Float64, edges: Float64) -> Int64:
    """Return how many of an example's ordered values are below each of its edges: all binary searches at once.

    ordered: shape (n_examples, n_models). edges: shape (n_examples, bins + 1).
    """
    n_models = ordered.shape[1]
    flat, start = ordered.ravel(), n_models * np.arange(len(ordered))[:, None] - 1
    below = np.zeros(edges.shape, np.int64)
    step = 1 << (n_models.bit_length() - 1)
    while step:
        tried = np.minimum(below + step, n_models)
        below = np.where(flat[start + tried] < edges, tried, below)
        step >>= 1
    return below


KLOM = Metric(
    title="KLOM on the forget set",
    function=klom,
    needs=both_sides("forget_margins"),
    fewest_models=2,
    unit="nats (95th percentile over examples)",
    defaults=KlomParameters,
    per_example=True,
    bounds=(0.0, float("inf")),
    ideal=0.0,
    resampling=Resampling.MODELS,
    n_resamples=20,
    source="Georgiev et al. 2024 (2410.23232), appendix E.1; EasyDUB",
    formula=(
        "per example KL( P || Q ), P and Q the shares of retrained and unlearned margins in 20 equal bins over the "
        "pooled range, margins clipped to +-100, Q at least 1e-5 where P > 0; 95th percentile over examples"
    ),
    paper_and_code=(
        "The published signature says KL(unlearned || oracle); the call swaps the arguments, which is the paper's "
        "KL(oracle || unlearned). The last bin excludes its upper end, so the greatest margin is not counted: "
        "klom_closed counts it. Few models give a positive value even for exact unlearning: see the oracle's."
    ),
)


KLOM_CLOSED = replace(
    KLOM,
    id="klom_closed",
    title="KLOM on the forget set, last bin closed",
    function=klom_closed,
    formula="as klom, with the upper end of the last bin included",
)


KLOM_TEST = replace(
    KLOM,
    id="klom_test",
    title="KLOM on the test set",
    needs=both_sides("test_margins"),
    formula="as klom, over the examples of the test set",
)


KLOM_RETAIN = replace(
    KLOM,
    id="klom_retain",
    title="KLOM on the retain set",
    needs=both_sides("retain_margins"),
    formula="as klom, over the examples of the retain set",
)
