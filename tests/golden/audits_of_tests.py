"""Recompute the golden values of the distribution tests (tests.npz)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from lethe.metrics.distribution.joint_audit import density_ratio, fitted, held_out
from lethe.metrics.distribution.relative_test import matrices, nearer_to_retrained, relative_position
from lethe.metrics.distribution.two_sample_test import (
    aggregated_statistics,
    distances,
    fused_statistics,
    kernel_values,
    minimum_p,
    mmdagg_rejections,
    p_values,
)
from lethe.metrics.membership.one_run import gaussian_delta

Array = npt.NDArray[Any]
Values = Iterator[tuple[str, Any, float]]
TIGHT, P_VALUE, FLOAT32 = 1e-9, 1e-7, 1e-4
SETTINGS = ("gaussian_median", "gaussian_bounliphone", "gaussian_1", "gaussian_4")
LAPLACE = ("laplace_median", "laplace_1", "laplace_6")
SAMPLES = ("unequal", "null", "equal")

_WILD = "of the wild bootstrap, which pairs runs by position; Lethe permutes labels"
_OTHER_VARIANCE = "another version of the variance; Lethe has the one that holds for unequal numbers of models"
NOT_COMPUTED: Mapping[str, str] = {
    **{
        f"relative_{case}_{setting}_out_{version}": _OTHER_VARIANCE
        for case in ("equal", "unequal")
        for setting in (*SETTINGS, *LAPLACE)
        for version in ("belilovsky", "kmod", "octave")
    },
    **{
        f"relative_{case}_{setting}_out_bounliphone_covariance": "Lethe computes the variance of the difference alone"
        for case in ("equal", "unequal")
        for setting in (*SETTINGS, *LAPLACE)
    },
    "relative_equal_kmod": _OTHER_VARIANCE,
    "relative_degenerate_": _OTHER_VARIANCE,
    "mmdagg_equal": _WILD,
    "mmdagg_degenerate_": "of the wild bootstrap or drawn by the program's own generator",
    **{
        f"mmdagg_{case}_out_{what}": "of each single test; rejections are compared"
        for case in ("unequal", "null")
        for what in ("mmd_quantiles", "p_value_thresholds")
    },
    "mmdagg_unequal_out_p_values": "wrong for the second kernel in the program; own_p_values are compared",
    "mmdagg_null_out_p_values": "wrong for the second kernel in the program; own_p_values are compared",
    **{
        f"minimum_p_{case}_out_{what}_with_noise": "ties are not broken at random"
        for case in SAMPLES
        for what in ("p_value", "reject")
    },
    "hockey_exact_out": "a formula for known distributions; Lethe has samples",
    **{
        f"hockey_kernel_{k}_lambda_{lam}_out_drmmd": "Lethe has the hockey-stick form only"
        for k in ("gaussian", "laplace")
        for lam in ("0_125", "1_0")
    },
    "fuse_": "a test by the fused hockey-stick; Lethe reports the divergence beside the oracle's",
    "barrier_": "robustness, which Lethe does not compute yet",
    "robustness_": "robustness, which Lethe does not compute yet",
    "faithfulness_": "meta-evaluation, which Lethe does not compute yet",
    "fade_": "no published definition of the length normalisation",
    "semeval_": "the organisers' score of a text competition",
}


def recomputed(stored: Mapping[str, Array]) -> Values:
    """Yield name, value and tolerance of everything that Lethe computes of the sections that are there."""
    for start, section in SECTIONS.items():
        if any(name.startswith(start) for name in stored):
            yield from section(stored)


def _relative(stored: Mapping[str, Array]) -> Values:
    for case in ("equal", "unequal"):
        u, r, o = (stored[f"relative_{case}_in_{side}"] for side in ("unlearned", "retrained", "original"))
        for setting in (*SETTINGS, *LAPLACE):
            name = f"relative_{case}_{setting}_out_"
            by_rule = setting.endswith("median") and case == "equal"  # the program drops rows of longer samples
            width = 0.0 if by_rule else float(stored[name + "bandwidth"])
            kernel: Any = setting.split("_")[0]
            found = matrices(u, r, o, kernel, width)
            difference, variance = found.to_retrained - found.to_original, found.variance(published_factor=True)
            yield name + "bandwidth", found.bandwidth, TIGHT
            yield name + "mmd2_unlearned_retrained", found.to_retrained, TIGHT
            yield name + "mmd2_unlearned_original", found.to_original, TIGHT
            yield name + "difference", difference, TIGHT
            yield name + "bounliphone_mean", [found.to_retrained, found.to_original], TIGHT
            yield name + "bounliphone_variance", variance, TIGHT
            yield name + "bounliphone_p_value", ndtr(-difference / np.sqrt(variance)), P_VALUE


def _calibration(stored: Mapping[str, Array]) -> Values:
    """Draw the repetitions again; the first two columns are of another version of the variance and stay as stored."""
    seed, shape = int(stored["relative_calibration_in_seed"]), tuple(stored["relative_calibration_in_shape"].tolist())
    p_values = stored["relative_calibration_out_p_values"].copy()
    for case, shifts in enumerate(stored["relative_calibration_in_means"].tolist()):
        for repetition in range(p_values.shape[1]):
            rng = np.random.default_rng([seed, 2, case, repetition])
            u, r, o = (rng.standard_normal(shape) + mean for mean in (0.0, *shifts))
            found = matrices(u, r, o, "gaussian", 1.0)
            statistic = (found.to_retrained - found.to_original) / np.sqrt(found.variance(published_factor=True))
            p_values[case, repetition, 2] = ndtr(-statistic)
    rejected = stored["relative_calibration_out_rejected"].copy()
    rejected[:, 2] = (p_values[:, :, 2] <= 0.05).mean(axis=1)
    yield "relative_calibration_out_p_values", p_values, P_VALUE
    yield "relative_calibration_out_rejected", rejected, TIGHT


def _aggregated(stored: Mapping[str, Array]) -> Values:
    for case in SAMPLES:
        x, y = stored[f"mmdagg_{case}_in_x"], stored[f"mmdagg_{case}_in_y"]
        if case != "equal":
            yield from _mmdagg(stored, case, x, y)
        statistics = stored[f"minimum_p_{case}_in_statistics"]
        yield f"minimum_p_{case}_out_smallest", p_values(statistics).min(axis=0), 1e-6
        yield f"minimum_p_{case}_out_p_value", minimum_p(statistics), 1e-6
        labels = np.roll(stored[f"mmdfuse_{case}_in_in_first_sample"], 1, axis=0)  # the data comes first here
        pool = np.concatenate((y, x) if stored[f"mmdfuse_{case}_in_swapped"] else (x, y))
        rows, fused = fused_statistics(pool, labels, n_bandwidths=len(stored[f"mmdfuse_{case}_out_statistics"]) // 2)
        p_value = float((fused >= fused[0] - 1e-12).mean())
        yield f"mmdfuse_{case}_out_statistics", np.roll(rows, -1, axis=1), TIGHT
        yield f"mmdfuse_{case}_out_fused", np.roll(fused, -1), TIGHT
        yield f"mmdfuse_{case}_out_p_value", p_value, 1e-6
        yield f"mmdfuse_{case}_out_reject", int(p_value <= 0.05), 0.0


def _mmdagg(stored: Mapping[str, Array], case: str, x: Array, y: Array) -> Values:
    b1, _, _, n_bandwidths = (int(n) for n in stored[f"mmdagg_{case}_in_b1_b2_b3_bandwidths"])
    labels = stored[f"mmdagg_{case}_in_in_first_sample"]
    order = [b1, *range(b1), *range(b1 + 1, len(labels))]  # the data first
    widths, statistics = aggregated_statistics(x, y, labels[order], n_bandwidths=n_bandwidths)
    simulated, for_level = statistics[:, : b1 + 1], statistics[:, b1 + 1 :]
    rejects = mmdagg_rejections(simulated, for_level, level=0.05)
    name = f"mmdagg_{case}_out_"
    yield name + "bandwidths", widths, TIGHT
    yield name + "mmds", statistics[:, 0], TIGHT
    yield name + "statistics", np.roll(simulated, -1, axis=1), TIGHT
    yield name + "own_p_values", p_values(simulated)[:, 0], TIGHT
    yield name + "rejects", rejects, 0.0
    yield name + "reject", int(rejects.any()), 0.0
    for kernel, rows in (("laplace", slice(0, n_bandwidths)), ("gaussian", slice(n_bandwidths, None))):
        alone = mmdagg_rejections(simulated[rows], for_level[rows], level=0.05)
        yield f"mmdagg_{case}_{kernel}_out_reject", int(alone.any()), 0.0


def _hockey(stored: Mapping[str, Array]) -> Values:
    means, epsilons = stored["hockey_normal_in_mean"], stored["hockey_normal_in_epsilon"]
    with np.errstate(divide="ignore"):
        normal = [[gaussian_delta(e, 1.0 / mean) if mean else 0.0 for e in epsilons] for mean in means]
    yield "hockey_normal_out", normal, TIGHT
    x, y, orders = stored["hockey_kernel_in_x"], stored["hockey_kernel_in_y"], stored["hockey_exact_in_order"]
    for kernel in ("gaussian", "laplace"):
        for lam in ("0_125", "1_0"):
            name = f"hockey_kernel_{kernel}_lambda_{lam}_"
            width, regularisation = stored[name + "in_bandwidth_lambda"]
            # the program's Laplace kernel is exp(-sqrt(2) d / s)
            width = float(width) / (np.sqrt(2.0) if kernel == "laplace" else 1.0)
            k = [kernel_values(distances(a, b, kernel), width, kernel) for a, b in ((x, x), (y, y), (x, y))]
            forth = density_ratio(*k, regularisation=float(regularisation))
            back = density_ratio(k[1], k[0], k[2].T, regularisation=float(regularisation))
            one_sided = [forth.divergence(float(g)) for g in orders]
            yield name + "out_ratio_at_x", forth.at_p, TIGHT
            yield name + "out_ratio_at_y", forth.at_q, TIGHT
            yield name + "out_one_sided", one_sided, 1e-6
            yield name + "out_symmetric", np.maximum(one_sided, [back.divergence(float(g)) for g in orders]), 1e-6


def _joint(stored: Mapping[str, Array]) -> Values:
    def side(name: str) -> Array:
        return stored[f"joint_in_{name}"]

    u, r = side("unlearned"), side("retrained")
    with_all = [
        np.concatenate([side(name), side(f"{name}_retain"), side(f"{name}_test")], axis=1)
        for name in ("unlearned", "retrained")
    ]
    constant = [np.column_stack((np.ones(len(runs)), runs[:, 1:])) for runs in (u, r)]
    pairs = {
        "forget": (u, r),
        "all": tuple(with_all),
        "original": (side("original"), r),
        "constant_example": tuple(constant),
        "same": (r, r),
    }
    for order in ("in_order", "shuffled"):
        folds = side(f"fold_{order}").astype(np.int64)
        for name, (first, second) in pairs.items():
            found = held_out(first, second, folds)
            start = f"joint_{name}_{order}_out_"
            # equal runs are held out together: whether rounding breaks their ties is chance
            areas = 0.02 if (name, order) == ("same", "in_order") else 1e-12
            yield start + "margins", found.margins, 1e-6
            yield start + "fold_aucs", found.fold_aucs, areas
            yield start + "mean_auc", found.fold_aucs.mean(), areas
            yield start + "pooled_auc", found.pooled_auc, areas
            yield start + "accuracy", found.accuracy, 1e-12
    runs = np.concatenate((u, r))
    labels = np.repeat([1, 0], (len(u), len(r)))
    weights, intercept = fitted((runs - runs.mean(axis=0)) / runs.std(axis=0), labels, penalty=0.01)
    yield "joint_forget_out_coefficients_of_all_runs", weights, 1e-6
    yield "joint_forget_out_intercept_of_all_runs", intercept, 1e-6


def _position(stored: Mapping[str, Array]) -> Values:
    u, r, o = (stored[f"joint_in_{side}"] for side in ("unlearned", "retrained", "original"))
    starts = {"one": o[:1], "own": o, "mean": o.mean(axis=0, keepdims=True)}
    for name, start in starts.items():
        for middle, runs in (("", u), ("retrained_", r)):
            yield f"position_{name}_original_{middle}out", relative_position(runs, r, start).per_run, TIGHT
            share = nearer_to_retrained(runs, r, start).value
            yield f"position_{name}_original_{middle}out_share_nearer", share, 0.0


SECTIONS = {
    "relative_equal": _relative,
    "relative_calibration": _calibration,
    "mmdagg": _aggregated,
    "hockey": _hockey,
    "joint": _joint,
    "position": _position,
}
