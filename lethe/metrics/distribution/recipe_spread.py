"""Which part of an entry's distance from retraining other harmless recipes of retraining have too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.compiled import one_blas_thread
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import Cell, MetricResult
from lethe.metrics.distribution.joint_audit import audit_folds, held_out
from lethe.metrics.distribution.two_sample_test import distances as run_distances
from lethe.metrics.distribution.two_sample_test import kernel_values, median_bandwidth, unbiased_mmd2

MIN_MODELS = 3  # below it F is not defined
MAX_BLOCKS = 8
QUANTILES = (0.025, 0.975)
AUGMENTATIONS = ("none", "flip", "crop-flip")


@dataclass(frozen=True, eq=False)
class ModelGroup:
    """Some models: confidences (n_models, n_examples), test accuracy (n_models,)."""

    confidences: Float64
    test_accuracy: Float64

    def __len__(self) -> int:
        return len(self.confidences)

    def block(self, number: int, size: int) -> "ModelGroup":
        """Return the models of one block of `size`."""
        rows = slice(number * size, (number + 1) * size)
        return ModelGroup(self.confidences[rows], self.test_accuracy[rows])


def joint_auc(one: ModelGroup, retrained: ModelGroup) -> float:
    """Return the AUC of `joint_audit`, without its curve."""
    u, r = one.confidences, retrained.confidences
    return float(held_out(u, r, audit_folds(u, r, n_folds=5, seed=0)).fold_aucs.mean())


def lost_quality(one: ModelGroup, retrained: ModelGroup) -> float:
    """Return 1 - F."""
    from lethe.metrics.scoring.score import ModelOutputs, score  # noqa: PLC0415  loads numba

    scored = score(ModelOutputs(one.confidences), ModelOutputs(retrained.confidences), n_resamples=0)
    return 1.0 - scored.forgetting_quality


def shift(one: ModelGroup, retrained: ModelGroup) -> float:
    """Return the root mean square over examples of (mean u - mean r) / sd r; examples without spread are left out."""
    u, r = one.confidences, retrained.confidences
    varied = np.ptp(r, axis=0) > 0.0
    if not varied.any():
        return float("nan")
    apart = (u.mean(axis=0) - r.mean(axis=0))[varied] / r.std(axis=0)[varied]
    return float(np.sqrt(np.mean(apart**2)))


def mmd2(one: ModelGroup, retrained: ModelGroup) -> float:
    """Return the unbiased MMD^2, Gaussian kernel; the bandwidth is of the retrained models alone, so of no entry."""
    u, r = one.confidences, retrained.confidences
    within = run_distances(r, r, "gaussian")
    width = median_bandwidth(within, "gaussian")
    parts = (run_distances(u, u, "gaussian"), within, run_distances(u, r, "gaussian"))
    return unbiased_mmd2(*(kernel_values(part, width, "gaussian") for part in parts))


def probability_gap(one: ModelGroup, retrained: ModelGroup) -> float:
    """Return |mean p_u - mean p_r| of the forget examples' true classes."""
    means = [float((1.0 / (1.0 + np.exp(-np.clip(runs.confidences, -500, 500)))).mean()) for runs in (one, retrained)]
    return abs(means[0] - means[1])


def accuracy_apart(one: ModelGroup, retrained: ModelGroup) -> float:
    """Return |mean test accuracy of u - that of r|."""
    return abs(float(one.test_accuracy.mean() - retrained.test_accuracy.mean()))


# each is larger the further a sample is from the retrained models
DISTANCES: Mapping[str, Callable[[ModelGroup, ModelGroup], float]] = {
    "joint_auc": joint_auc,
    "lost_quality": lost_quality,
    "shift": shift,
    "mmd2": mmd2,
    "forget_probability_gap": probability_gap,
    "test_accuracy_gap": accuracy_apart,
}


def recipe_spread(  # noqa: PLR0917  a metric's arrays are its arguments
    unlearned: Float64,
    unlearned_test: Float64,
    retrained: Float64,
    retrained_test: Float64,
    oracle: Float64,
    oracle_test: Float64,
    recipe_confidences: Float64,
    recipe_test_accuracy: Float64,
    recipe_settings: Float64,
) -> MetricResult:
    """Return the least share of the entry's distances that harmless retraining has too, in [0, 1]; 1: all of each.

    unlearned, retrained, oracle: confidences (n_models, n_examples), with test accuracies (n_models,); the numbers of
    models may differ. recipe_confidences (n_variations, m, n_examples) and recipe_test_accuracy (n_variations, m): of
    models retrained by variations of the recipe. recipe_settings (n_variations, 4): each one's epochs, weight decay,
    batch size, and augmentation as its place in `AUGMENTATIONS`.

    Every distance d of DISTANCES is of n models against n: the least of m and the numbers of models. Block b is the
    b-th n models of a side, up to 8 blocks. Standard: d(oracle_b, r_b). Harmless: d(v, r_b) for the first n models v
    of every variation. Entry: d(u_b, r_b). With s the mean of standard and h the 97.5 % quantile of harmless,
    share = (h - s) / (mean entry - s), cut off to [0, 1]; 1 where the entry is no further than s. The quantiles of
    harmless distances are values that occur: of few the least and the greatest.
    table: of each distance the entry's mean, the standard's, the harmless 2.5 % and 97.5 % quantiles and the share;
    and a column per distance, its mean of each variation. interval: 2.5 % and 97.5 % quantiles of the least share of
    single blocks; None with one block.
    A distance that is NaN (no example varies) is left out with a note; the value is NaN if all are.
    Raises InvalidMetricInput for fewer than 3 models on a side.
    """
    varied = [ModelGroup(*pair) for pair in zip(recipe_confidences, recipe_test_accuracy, strict=True)]
    sides = {
        Side.UNLEARNED: ModelGroup(unlearned, unlearned_test),
        Side.RETRAINED: ModelGroup(retrained, retrained_test),
        Side.ORACLE: ModelGroup(oracle, oracle_test),
    }
    size = min(len(varied[0]), *(len(runs) for runs in sides.values()))
    if size < MIN_MODELS:
        raise InvalidMetricInput(f"recipe_spread needs at least {MIN_MODELS} models of every side, not {size}")
    n_blocks = min(MAX_BLOCKS, *(len(runs) // size for runs in sides.values()))
    spreads: dict[str, _Spread] = {}
    with one_blas_thread():
        for name, distance in DISTANCES.items():
            spreads[name] = _spread(distance, sides, varied, size=size, n_blocks=n_blocks)
    return _result(spreads, _labels(recipe_settings), size=size, n_blocks=n_blocks)


@dataclass(frozen=True, eq=False)
class _Spread:
    """One distance. entry, standard: (n_blocks,). harmless: (n_variations, n_blocks)."""

    entry: Float64
    standard: Float64
    harmless: Float64

    @property
    def known(self) -> bool:
        return bool(all(np.isfinite(part).all() for part in (self.entry, self.standard, self.harmless)))

    @property
    def range(self) -> tuple[float, float]:
        """The harmless distances' quantiles, each of the values itself: of a few the least and the greatest."""
        low = np.quantile(self.harmless, QUANTILES[0], method="lower")
        return float(low), float(np.quantile(self.harmless, QUANTILES[1], method="higher"))

    def share(self, entry: float) -> float:
        start = float(self.standard.mean())
        if entry <= start:
            return 1.0
        return float(np.clip((self.range[1] - start) / (entry - start), 0.0, 1.0))


def _spread(
    distance: Callable[[ModelGroup, ModelGroup], float],
    sides: Mapping[Side, ModelGroup],
    varied: Sequence[ModelGroup],
    *,
    size: int,
    n_blocks: int,
) -> _Spread:
    references = [sides[Side.RETRAINED].block(number, size) for number in range(n_blocks)]

    def of_side(side: Side) -> Float64:
        return np.array([distance(sides[side].block(b, size), references[b]) for b in range(n_blocks)])

    harmless = [[distance(runs.block(0, size), block) for block in references] for runs in varied]
    return _Spread(of_side(Side.UNLEARNED), of_side(Side.ORACLE), np.array(harmless))


def _result(spreads: Mapping[str, _Spread], labels: list[Cell], *, size: int, n_blocks: int) -> MetricResult:
    known = {name: spread for name, spread in spreads.items() if spread.known}
    notes = tuple(f"{name} is not defined for these arrays: left out" for name in spreads if name not in known)
    table: dict[str, Cell | Sequence[Cell]] = {"models": size, "blocks": n_blocks, "variation": labels}
    for name, spread in known.items():
        table[f"{name}_share"] = spread.share(float(spread.entry.mean()))
        table[f"{name}_entry"] = float(spread.entry.mean())
        table[f"{name}_standard"] = float(spread.standard.mean())
        low, high = spread.range
        table |= {f"{name}_harmless_low": low, f"{name}_harmless_high": high}
        table[name] = [float(value) for value in spread.harmless.mean(axis=1)]
    if not known:
        return MetricResult(float("nan"), table=table, notes=notes)
    least = [min(spread.share(float(spread.entry[block])) for spread in known.values()) for block in range(n_blocks)]
    value = min(spread.share(float(spread.entry.mean())) for spread in known.values())
    interval = None
    if n_blocks > 1:
        low, high = (float(end) for end in np.quantile(least, QUANTILES))
        interval = min(low, value), max(high, value)
    return MetricResult(value, interval=interval, table=table, notes=notes)


def _labels(settings: Float64) -> list[Cell]:
    return [
        f"epochs {row[0]:g}, weight decay {row[1]:g}, batch size {row[2]:g}, augmentation {AUGMENTATIONS[int(row[3])]}"
        for row in settings
    ]


_SIDES = (Side.UNLEARNED, Side.RETRAINED, Side.ORACLE)

METRIC = Metric(
    title="Distance within harmless retraining",
    function=recipe_spread,
    needs={
        **{str(side): Need("forget_margins", side) for side in _SIDES},
        **{f"{side}_test": Need("test_accuracy", side) for side in _SIDES},
        **{
            f"recipe_{name}": Need(f"recipe_{name}", Side.SHARED)
            for name in ("confidences", "test_accuracy", "settings")
        },
    },
    unit="share of the distance",
    direction=Direction.HIGHER,
    bounds=(0.0, 1.0),
    ideal=1.0,
    resampling=Resampling.OWN,
    source="defined by Lethe",
    formula=("min over distances d of (q_97.5 d(v, r) - s) / (mean d(u, r) - s), cut to [0, 1]; s = mean d(oracle, r)"),
)
