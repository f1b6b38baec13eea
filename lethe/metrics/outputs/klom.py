"""KL divergence of the margins of retrained and unlearned models, per example."""

from dataclasses import replace

import numpy as np
from pydantic import Field
from scipy.special import rel_entr

from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.registry import Metric, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult

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


def _shares(counts: Int64) -> Float64:
    total = counts.sum(axis=1, keepdims=True)
    return np.asarray(counts / np.maximum(total, 1))


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
