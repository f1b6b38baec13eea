"""Whether knowledge is left in the weights: distance, relearning, perturbed inputs, attacks on weights."""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling, both_sides
from lethe.metrics.core.result import Cell, MetricResult

Weights = Mapping[str, npt.ArrayLike]


def weight_distance(first: Weights, second: Weights) -> MetricResult:
    """Return the L2 distance of all weights, >= 0.

    first, second: arrays by name, trained parameters only (no buffers such as running means), equal names and shapes.
    table: the distance over the norm of the first, the norm of the first, and the distance of the weights scaled to
    unit norm (both None where a norm is 0).
    A diagnostic, no measure of forgetting: two retrained models are as far apart. Show it beside the distances from
    original to retrained and between two retrained models.
    Raises InvalidMetricInput for other names or shapes, or weights that are not finite.
    Source: Cadet et al. 2024 (arXiv:2410.01276), appendix C; Golatkar et al. 2020 for the ratio.
    """
    a, b = _flat(first, side="first"), _flat(second, side="second")
    if set(a) != set(b):
        raise InvalidMetricInput(f"the networks differ in the parameters {sorted(set(a) ^ set(b))}")
    wrong = [name for name in a if a[name].shape != b[name].shape]
    if wrong:
        raise InvalidMetricInput(
            f"the networks differ in the size of {wrong[0]}: {a[wrong[0]].size}, {b[wrong[0]].size}"
        )
    norm_a, norm_b = _norm(a.values()), _norm(b.values())
    distance = _norm(a[name] - b[name] for name in a)
    unit = _norm(a[name] / norm_a - b[name] / norm_b for name in a) if norm_a and norm_b else None
    ratio = distance / norm_a if norm_a else None
    return MetricResult(distance, table={"over_norm": ratio, "norm": norm_a, "of_unit_weights": unit})


def mean_weight_distance(distance: Float64, norm: Float64, retrained_norm: Float64) -> MetricResult:
    """Return the mean L2 distance of models from retrained ones, model i from retrained model i.

    distance, norm, retrained_norm: shape (k,) each, >= 0; where they are of unequal length, the first of each count.
    table: the mean distance over the norm, the mean norm, and the mean distance of the weights scaled to unit norm
    (None where a norm is 0).
    """
    columns = (distance, norm, retrained_norm)
    n_models = min(column.size for column in columns)
    apart, own, other = (column[:n_models] for column in columns)
    table: dict[str, float | None] = {"over_norm": None, "norm": float(own.mean()), "of_unit_weights": None}
    if own.all() and other.all():
        unit_squared = 2.0 - (own**2 + other**2 - apart**2) / (own * other)  # |a/|a| - b/|b||^2 by the law of cosines
        table["over_norm"] = float((apart / own).mean())
        table["of_unit_weights"] = float(np.sqrt(np.maximum(unit_squared, 0.0)).mean())
    return MetricResult(float(apart.mean()), per_run=apart, table=table)


def _flat(weights: Weights, *, side: str) -> dict[str, Float64]:
    flat = {name: np.asarray(values, np.float64).reshape(-1) for name, values in weights.items()}
    if not flat:
        raise InvalidMetricInput(f"the {side} network has no parameters", side=side)
    for name, values in flat.items():
        if not np.isfinite(values).all():
            raise InvalidMetricInput(f"{name} of the {side} network holds a value that is not finite", side=side)
    return flat


def _norm(parts: Iterable[Float64]) -> float:
    return math.sqrt(math.fsum(float(part @ part) for part in parts))


METRIC = Metric(
    id="weight_distance",
    title="Distance of weights",
    function=mean_weight_distance,
    needs={
        "distance": Need("weight_distance"),
        "norm": Need("weight_norm"),
        "retrained_norm": Need("weight_norm", Side.RETRAINED),
    },
    unit="L2 distance",
    direction=Direction.NONE,
    paired=True,
    unequal_too=True,
    bounds=(0.0, float("inf")),
    resampling=Resampling.RUNS,
    source="Cadet et al. 2024 (2410.01276), appendix C; Golatkar et al. 2020 (1911.04933)",
    formula="mean_i || theta_u_i - theta_r_i ||, and over || theta_u_i ||",
)


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
    """
    u, r = _knowledge(unlearned, Side.UNLEARNED), _knowledge(retrained, Side.RETRAINED)
    difference = u.mean(axis=0) - r.mean(axis=0)
    worst = int(np.argmax(difference))
    table: dict[str, Cell | list[Cell]] = {
        "worst": ATTACKS[worst],
        "attack": list(ATTACKS),
        "unlearned": u.mean(axis=0).tolist(),
        "retrained": r.mean(axis=0).tolist(),
    }
    if original is not None:
        table["original"] = _knowledge(original, Side.ORIGINAL).mean(axis=0).tolist()
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


ROBUSTNESS = Metric(
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


class RelearnTimeParameters(Parameters):
    """max_epochs: where the probe stopped; a model that needed more is counted with this number."""

    max_epochs: int = Field(100, ge=1)


def relearn_time(unlearned: Float64, retrained: Float64, *, max_epochs: int = 100) -> MetricResult:
    """Return mean epochs of the unlearned over those of the retrained models; 1 is ideal, below it knowledge is left.

    unlearned, retrained: epochs of training on the forget set alone until its mean loss is back within 5 % of the
    original model's, shape (k,) each; 0 if it is there from the start, at most max_epochs.
    per_run: epochs of each unlearned model over the mean of the retrained ones. table: means and the numbers of
    censored models. NaN if every retrained model needs 0 epochs.
    Raises InvalidMetricInput for epochs above max_epochs.
    """
    u, r = (_within(epochs, max_epochs) for epochs in (unlearned, retrained))
    censored = {side: int((epochs >= max_epochs).sum()) for side, epochs in (("unlearned", u), ("retrained", r))}
    table: dict[str, float] = {"unlearned": float(u.mean()), "retrained": float(r.mean())}
    table |= {f"{side}_censored": number for side, number in censored.items()}
    notes = [f"{number} {side} models did not relearn in time" for side, number in censored.items() if number]
    if r.mean() == 0.0:
        notes.append("the retrained models know the forget set from the start: no ratio")
        return MetricResult(float("nan"), table=table, notes=tuple(notes))
    return MetricResult(float(u.mean() / r.mean()), per_run=u / r.mean(), table=table, notes=tuple(notes))


def _within(epochs: Float64, max_epochs: int) -> Float64:
    if epochs.max() > max_epochs:
        raise InvalidMetricInput(f"relearn epochs must be within [0, {max_epochs}], not {epochs.max():g}")
    return epochs


RELEARN_TIME = Metric(
    title="Relearn time",
    function=relearn_time,
    needs=both_sides("relearn_epochs"),
    unit="times the retrained models'",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=RelearnTimeParameters,
    bounds=(0.0, float("inf")),
    ideal=1.0,
    resampling=Resampling.MODELS,
    version=2,
    source="Golatkar et al. 2020 (1911.04933); Goel et al. 2022 (2201.06640), table 1; SCRUB (2302.09880)",
    formula="mean_i epochs(u_i) / mean_j epochs(r_j) until the loss on the forget set is within 5 % of the original's",
    paper_and_code="Epochs are censored at 100; the learning rate is a tenth of the training's.",
)


def residual_knowledge(unlearned: Float64, retrained: Float64, radii: Float64) -> MetricResult:
    """Return Pr[unlearned right] / Pr[retrained right] on perturbed forget examples; 1 is ideal, above it is residual.

    unlearned, retrained: share of the perturbed copies that a model classifies correctly, shape
    (n_models, n_radii, n_examples) each; the numbers of models may differ. radii: shape (n_radii,), >= 0.
    The value is at the largest radius. arrays: `radii`, `ratio` per radius, and `residual_share`, the share of
    examples that unlearned models get right more often. NaN where retrained models are never right.
    """
    known_u, known_r = unlearned.mean(axis=0), retrained.mean(axis=0)
    below = known_r.mean(axis=1)
    ratio = np.where(below > 0.0, known_u.mean(axis=1) / np.where(below > 0.0, below, 1.0), np.nan)
    return MetricResult(
        float(ratio[int(np.argmax(radii))]),
        arrays={"radii": radii, "ratio": ratio, "residual_share": (known_u > known_r).mean(axis=1)},
    )


RESIDUAL_KNOWLEDGE = Metric(
    title="Residual knowledge",
    function=residual_knowledge,
    needs={
        "unlearned": Need("perturbed_accuracy"),
        "retrained": Need("perturbed_accuracy", Side.RETRAINED),
        "radii": Need("perturbation_radii", Side.SHARED),
    },
    unit="ratio",
    direction=Direction.TOWARDS_RETRAINED,
    bounds=(0.0, float("inf")),
    ideal=1.0,
    resampling=Resampling.MODELS,
    source="Hsu et al. 2025 (2601.22359), residual knowledge",
    formula="r_tau = Pr[ u(x') = y ] / Pr[ r(x') = y ], x' within a distance tau of a forget example x",
    paper_and_code=(
        "No code is public. The ratio here is of the means over forget examples and models, which stays defined when "
        "retrained models never recognise one example."
    ),
)
