"""Whether what was forgotten comes back: by training, rounding, pruning, or half-way to the original."""

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import Cell, MetricResult

# name-number: epochs on the retain set alone; epochs on half of the forget set, asked on the other half; bits;
# per cent of each layer's weights; per cent of the way to the original
ATTACKS = (
    "none",
    "retain-1",
    "retain-2",
    "retain-3",
    "relearn-1",
    "relearn-2",
    "relearn-5",
    "quantise-8",
    "quantise-4",
    "prune-50",
    "prune-80",
    "interpolate-25",
    "interpolate-50",
)


def robustness(
    unlearned: Float64,
    retrained: Float64,
    original: Float64 | None = None,
    unlearned_barrier: Float64 | None = None,
    retrained_barrier: Float64 | None = None,
) -> MetricResult:
    """Return the most by which unlearned models know the forget set better than retrained ones, over all attacks.

    unlearned, retrained, original: knowledge of the forget set after each of `ATTACKS`, shape (n_models, n_attacks),
    in [0, 1]: accuracy, or the mean probability of answers. The numbers of models may differ.
    Barriers: nats, shape (n_models,).
    The value is max over attacks, "none" among them, of mean unlearned - mean retrained: 0 is ideal; above it
    knowledge is there or comes back, below it retrained models know more in every case.
    table: a column per side, the attack with the largest difference, and mean barriers.
    Raises InvalidMetricInput for another number of attacks.
    Source: retain set and barriers: arXiv:2505.22310; relearning and rounding: open-unlearning (arXiv:2506.12618).
    """
    u, r = _knowledge(unlearned, Side.UNLEARNED), _knowledge(retrained, Side.RETRAINED)
    difference = u.mean(axis=0) - r.mean(axis=0)
    worst = int(np.argmax(difference))
    table: dict[str, Cell | list[Cell]] = {
        "worst": ATTACKS[worst],
        "attack": list(ATTACKS),
        "unlearned": _cells(u.mean(axis=0)),
        "retrained": _cells(r.mean(axis=0)),
    }
    if original is not None:
        table["original"] = _cells(_knowledge(original, Side.ORIGINAL).mean(axis=0))
    for side, barrier in ((Side.UNLEARNED, unlearned_barrier), (Side.RETRAINED, retrained_barrier)):
        if barrier is not None:
            table[f"{side}_barrier"] = float(barrier.mean())
    return MetricResult(float(difference[worst]), table=table)


def _knowledge(values: Float64, side: Side) -> Float64:
    if values.shape[1] != len(ATTACKS):
        raise InvalidMetricInput(
            f"{side} knowledge must be of {len(ATTACKS)} attacks ({', '.join(ATTACKS)}), not {values.shape[1]}",
            side=side,
        )
    return values


def _cells(values: Float64) -> list[Cell]:
    return [float(value) for value in values]


METRIC = Metric(
    id="robustness",
    title="Knowledge after the worst attack",
    function=robustness,
    needs={
        "unlearned": Need("attacked_knowledge"),
        "retrained": Need("attacked_knowledge", Side.RETRAINED),
        "original": Need("attacked_knowledge", Side.ORIGINAL, optional=True),
        "unlearned_barrier": Need("loss_barrier", optional=True),
        "retrained_barrier": Need("loss_barrier", Side.RETRAINED, optional=True),
    },
    unit="more than the retrained models",
    direction=Direction.TOWARDS_RETRAINED,
    bounds=(-1.0, 1.0),
    ideal=0.0,
    resampling=Resampling.MODELS,
    source="2505.22310 (training on the retain set, barrier); open-unlearning, 2506.12618 (relearning, rounding)",
    formula="max over attacks of mean_i k(u_i after attack) - mean_j k(r_j after attack)",
    paper_and_code=(
        "Rounding is to the nearest, symmetric, with a spacing for each output channel; pruning is by size within each "
        "layer. Images are trained by SGD at a tenth of the training's rate, answers by AdamW at the training's."
    ),
)
