"""Recompute the golden values of the privacy attacks and certificates (privacy.npz)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.attacks.likelihood_attack import kernel_log_densities, roc_curve
from lethe.metrics.core.arrays import Float64
from lethe.metrics.membership import epsilon_bound as bound
from lethe.metrics.membership import likelihood_ratios, one_run, run_scores

Array = npt.NDArray[Any]
Values = Iterator[tuple[str, Any, float]]
TIGHT, ROOT_FINDER, FLOAT32 = 1e-9, 2e-6, 1e-4

_TUNING = "a is given, not tuned on a paired model"
_PLAIN = "PrivacyGuard's values without correction, which are no valid bound"
_SHADOWS = "of shadow models trained with and without one target; Lethe has runs of one split"
NOT_COMPUTED: Mapping[str, str] = {
    "rmia_out_score_u_default_half": "of paired training; retrained models are all OUT",
    "rmia_tune_": _TUNING,
    "cp_out_pg_": _PLAIN,
    "cp_out_jax_error_": "whether the program raised",
    "cp_out_jax_auc_": "read elsewhere by lethe.metrics.attacks.likelihood_attack",
    "cp_out_jax_accuracy_": "read elsewhere by lethe.metrics.attacks.likelihood_attack",
    "cp_out_jax_tpr_": "read elsewhere by lethe.metrics.attacks.likelihood_attack",
    "cp_out_jax_gdp_": "assumes a Gaussian trade-off",
    **{f"cp_out_jax_{what}_with_nan": "NaN is refused" for what in ("thresholds", "tn_fn", "bonferroni", "explicit")},
    "fdp_deg_out_pg_error": "the program's exceptions; Lethe refuses the same counts",
    "onerun_out_counts_at_threshold": "counts of the input",
    "iam_out_ecdf": "another family",
    "iam_out_kde": "another family",
    "iam_out_beta": "another family",
    "iam_out_gumbel_no_original": "puts an unscaled signal in the original's place",
    "iam_deg_out_": "NaN and constants, tested apart",
    "iam_llm_": "of language models",
    "ruli_out_confidence_": "clips probabilities; Lethe's confidences are not clipped",
    "ruli_deg_": "clips probabilities, or the program's exceptions",
    "ruli_out_population_": _SHADOWS,
    "ruli_out_efficacy_": _SHADOWS,
    **{f"ruli_out_privacy_{what}": _SHADOWS for what in ("labels", "scores", "auc", "tpr", "accuracy")},
    "ruli_roc_out_": "the program's reading of the curve, 0 below 51 negatives",
    "ruli_text_": _SHADOWS,
    "gus_out_ks_p": "Lethe's test is the z statistic",
}


def area_against_fresh(trained: Float64, fresh: Float64) -> float:
    """Return the AUC of alignments with the training noise against those with noise never trained on; 0.5: forgotten.

    trained, fresh: shape (n,) each. Lower alignments speak for training, so the area is of their negatives.
    """
    scores = -np.concatenate((trained, fresh))
    return roc_curve(scores, np.repeat([True, False], (trained.size, fresh.size))).area


def recomputed(stored: Mapping[str, Array]) -> Values:
    """Yield name, value and tolerance of everything that Lethe computes of the sections that are there."""
    for start, section in SECTIONS.items():
        if any(name.startswith(start) for name in stored):
            yield from section(stored)


def _rmia(stored: Mapping[str, Array]) -> Values:
    u, r, u_pop, r_pop = (stored[f"rmia_in_{side}"] for side in ("u", "r", "u_pop", "r_pop"))

    def scores(a: float, gamma: float, n_references: int) -> Array:
        chosen = {"offline_a": a, "gamma": gamma}
        out, out_pop = r[:n_references], r_pop[:n_references]
        return np.stack([run_scores.scores(x, out, z, out_pop, **chosen) for x, z in zip(u, u_pop, strict=True)])

    grid = [(a, gamma) for a in stored["rmia_par_a"].tolist() for gamma in stored["rmia_par_gamma"].tolist()]
    shape = len(stored["rmia_par_a"]), len(stored["rmia_par_gamma"])

    def on_grid(rows: list[Array]) -> Array:
        return np.stack(rows).reshape(*shape, *rows[0].shape)

    yield "rmia_out_score_u", on_grid([scores(*point, len(r)) for point in grid]), 0.0
    yield "rmia_out_score_u_one_reference", on_grid([scores(*point, 1) for point in grid]), 0.0
    others = [run_scores.leave_one_out(r, r_pop, offline_a=a, gamma=gamma) for a, gamma in grid]
    yield "rmia_out_score_r_leave_one_out", on_grid(others), 0.0
    cases = zip(stored["rmia_deg_in_x"], stored["rmia_deg_in_refs"], stored["rmia_deg_in_z"], strict=True)
    kept = list(cases)
    odd = [
        [run_scores.scores(x, refs, z, stored["rmia_deg_in_z_refs"], offline_a=a, gamma=1.0) for x, refs, z in kept]
        for a in stored["rmia_par_a"].tolist()
    ]
    yield "rmia_deg_out_score", np.array(odd), 0.0


def _bounds(stored: Mapping[str, Array]) -> Values:
    k, n = stored["cp_in_counts"].T
    upper = [bound.clopper_pearson_upper(k, n, significance=float(a)) for a in stored["cp_par_alpha"]]
    yield "cp_out_jax_upper", np.stack(upper), TIGHT
    deltas = stored["cp_par_delta"].tolist()
    for name in stored["cp_par_names"].tolist():
        train, test = stored[f"cp_in_train_{name}"], stored[f"cp_in_test_{name}"]
        if np.isnan(train).any() or np.isnan(test).any():
            continue
        hull = bound.hull_thresholds(train, test)
        missed, alarms = bound.errors_at(train, test, hull)
        yield f"cp_out_jax_thresholds_{name}", hull, TIGHT
        yield f"cp_out_jax_tn_fn_{name}", np.stack((len(test) - alarms, missed)), 0.0

        def on_grid(of: Any) -> list[list[float]]:
            return [[of(delta=delta, two_sided=two, significance=0.05) for delta in deltas] for two in (False, True)]

        def bonferroni(a: Array = train, b: Array = test, hull: Array = hull, **given: Any) -> float:
            return bound.epsilon_bonferroni(a, b, hull, **given)

        def explicit(a: Array = train, b: Array = test, name: str = name, **given: Any) -> float:
            return bound.epsilon_at(a, b, float(stored[f"cp_par_threshold_{name}"]), **given)

        yield f"cp_out_jax_bonferroni_{name}", on_grid(bonferroni), TIGHT
        yield f"cp_out_jax_explicit_{name}", on_grid(explicit), TIGHT
        if f"cp_split_out_{name}" not in stored:
            continue
        halves = [
            stored[f"cp_split_in_{side}_{name}"]
            for side in ("train_select", "test_select", "train_bound", "test_bound")
        ]

        def chosen(halves: list[Array] = halves, **given: Any) -> float:
            return bound.chosen_threshold(halves[0], halves[1], **given)

        def judged(halves: list[Array] = halves, chosen: Any = chosen, **given: Any) -> float:
            return bound.epsilon_at(halves[2], halves[3], chosen(halves, **given), **given)

        yield f"cp_split_out_threshold_{name}", on_grid(chosen), TIGHT
        yield f"cp_split_out_{name}", on_grid(judged), TIGHT


def _one_run(stored: Mapping[str, Array]) -> Values:
    cases = [
        dict(zip(("n_examples", "guesses", "correct"), map(int, row), strict=True))
        for row in stored["fdp_in_m_guesses_correct"]
    ]
    grid = stored["fdp_par_noise_grid"].tolist()
    first, published, continuous = [], [], []
    for tau, delta, alphabet in stored["fdp_par_tau_delta_k"].tolist():
        given: dict[str, Any] = {"significance": tau, "alphabet": int(alphabet)}
        found = [
            next((i for i, noise in enumerate(grid) if one_run.is_rejected(noise, **case, **given)), len(grid))
            for case in cases
        ]
        first.append(found)
        published.append([one_run.gaussian_epsilon(grid[min(i, len(grid) - 1)], delta) for i in found])
        continuous.append([one_run.epsilon_f_dp(**case, **given, delta=delta) for case in cases])
    yield "fdp_out_pg_first_rejected", np.array(first), 0.0
    yield "fdp_out_pg_eps", np.array(published), 1.1e-3  # their bisection stops at .001
    yield "fdp_out_jax_fdp_eps", np.array(continuous[: len(stored["fdp_out_jax_fdp_eps"])]), ROOT_FINDER
    noises = stored["fdp_par_noise"].tolist()
    for number in (1, 5, 9):
        pairs = [one_run.recursion(noise, **cases[number], significance=0.05) for noise in noises]
        accepted = [not one_run.is_rejected(noise, **cases[number], significance=0.05) for noise in noises]
        yield f"fdp_out_pg_r_case{number}", np.stack([r for r, _ in pairs]), TIGHT
        yield f"fdp_out_pg_h_case{number}", np.stack([h for _, h in pairs]), TIGHT
        yield f"fdp_out_pg_accepted_case{number}", np.array(accepted), 0.0
    epsilons = stored["fdp_par_eps_grid"].tolist()
    yield "fdp_out_pg_delta_of_noise_eps", [[one_run.gaussian_delta(e, s) for e in epsilons] for s in noises], TIGHT
    capped = [min(one_run.gaussian_epsilon(s, 1e-6), 100.0) for s in noises]  # the program stops at 100
    yield "fdp_out_pg_eps_of_noise", capped, 1.1e-3
    deltas = stored["steinke_par_delta"].tolist()
    p_values = [[[one_run.p_value_one_run(e, **case, delta=d) for case in cases] for e in epsilons] for d in deltas]
    yield "steinke_out_p_value", p_values, 1e-8
    bounds = [
        [[one_run.epsilon_one_run(**case, significance=p, delta=d) for case in cases] for d in deltas]
        for p in stored["steinke_par_p"].tolist()
    ]
    yield "steinke_out_eps", bounds, ROOT_FINDER
    yield "steinke_out_jax_eps", bounds, ROOT_FINDER


def _one_run_strategies(stored: Mapping[str, Array]) -> Values:
    """Guesses "member" at a threshold: a given one, all of the hull by Bonferroni, one chosen on another half."""
    scores, member = stored["onerun_in_scores"], stored["onerun_in_member"]
    given = float(stored["onerun_par_threshold"])
    halves = [stored[f"onerun_in_split_{part}_{side}"] for part in ("select", "bound") for side in ("in", "out")]
    for name, certify in (("steinke", one_run.epsilon_one_run), ("fdp", one_run.epsilon_f_dp)):
        rows = []
        for delta in stored["onerun_par_delta"].tolist():

            def at(a: Array, b: Array, t: float, p: float, delta: float = delta, certify: Any = certify) -> float:
                right, wrong = int((a >= t).sum()), int((b >= t).sum())
                if right + wrong == 0:
                    return 0.0
                n = len(a) + len(b)
                return float(certify(n_examples=n, guesses=right + wrong, correct=right, significance=p, delta=delta))

            a, b = scores[member], scores[~member]
            hull = bound.hull_thresholds(a, b)
            select = bound.hull_thresholds(halves[0], halves[1])
            best = float(select[np.argmax([at(halves[0], halves[1], t, 0.05) for t in select.tolist()])])
            rows.append(
                [
                    at(a, b, given, 0.05),
                    max(at(a, b, t, 0.05 / hull.size) for t in hull.tolist()),
                    at(halves[2], halves[3], best, 0.05),
                ]
            )
        yield f"onerun_out_{name}", rows, ROOT_FINDER


def _iam(stored: Mapping[str, Array]) -> Values:
    signals = {side: run_scores.signal(stored[f"iam_out_confidence_{side}"]) for side in ("u", "r", "o")}
    for side, values in signals.items():
        logits, labels = stored[f"iam_in_{side}_logits"], stored["iam_in_labels"]
        top = logits - logits.max(axis=-1, keepdims=True)
        p = np.exp(top) / np.exp(top).sum(axis=-1, keepdims=True)
        own = p[:, np.arange(labels.size), labels]
        yield f"iam_out_confidence_{side}", own, TIGHT
        yield f"iam_out_signal_{side}", values, TIGHT
        yield f"iam_out_carlini_{side}", np.log(own) - np.log1p(-own), 1e-8
    u, r, o = signals["u"], signals["r"], signals["o"]

    def scores(runs: Array, starts: Array, shadows: Array, **given: Any) -> Array:
        return np.stack(
            [
                run_scores.unlearning_scores(run, start, shadows, **given)
                for run, start in zip(runs, starts, strict=True)
            ]
        )

    carlini = {side: stored[f"iam_out_carlini_{side}"] for side in ("u", "r", "o")}
    half = u.shape[1] // 2
    yield "iam_out_gumbel", scores(u, o, r), TIGHT
    yield "iam_out_norm", scores(u, o, r, family="normal"), TIGHT
    yield "iam_out_gumbel_own_variance", scores(u, o, r, per_example_deviation=True), TIGHT
    yield "iam_out_norm_own_variance", scores(u, o, r, family="normal", per_example_deviation=True), TIGHT
    yield "iam_out_norm_carlini", scores(carlini["u"], carlini["o"], carlini["r"], family="normal"), TIGHT
    yield "iam_out_gumbel_of_original", scores(o, o, r), TIGHT
    alone = [run_scores.unlearning_scores(run, o[0], np.delete(r, i, axis=0)) for i, run in enumerate(r)]
    yield "iam_out_gumbel_of_retrained", np.stack(alone), TIGHT
    yield "iam_out_gumbel_2_steps", scores(u, o, r, steps=2), TIGHT
    yield "iam_out_gumbel_10_steps", scores(u, o, r, steps=10), TIGHT
    yield "iam_out_gumbel_one_shadow", scores(u, o, r[:1]), TIGHT
    yield "iam_out_gumbel_mean_original", scores(u, np.full_like(o, o.mean()), r), TIGHT
    first = scores(u[:, :half], o[:, :half], r[:, :half])
    yield "iam_out_gumbel_first_half_of_examples", first, TIGHT


def _ruli(stored: Mapping[str, Array]) -> Values:
    u, r = (stored[f"ruli_out_confidence_{side}"].astype(np.float64) for side in ("u", "r"))
    ratios = [likelihood_ratios.log_ratios(a, b) for a, b in zip(u.T, r.T, strict=True)]
    both = [np.stack([pair[side][: len(u)] for pair in ratios], axis=1) for side in (0, 1)]
    yield "ruli_out_ratio_u_r", np.stack([1.0 / (1.0 + np.exp(-rows)) for rows in both]), FLOAT32
    shadows = {
        name: stored[f"ruli_in_shadow_{name}"]
        for name in ("in_trained", "out_trained", "in_unlearned", "out_unlearned", "unlearned")
    }
    after, before = stored["ruli_in_target_unlearned"], stored["ruli_in_target_trained"]
    n = shadows["unlearned"].shape[1]  # the program cuts the others to this number
    pairs = {
        "in": (before, "in_trained"),
        "out": (before, "out_trained"),
        "unl": (after, "unlearned"),
        "unl_out": (after, "out_unlearned"),
        "unl_in": (after, "in_unlearned"),
    }
    for name, (target, shadow) in pairs.items():
        yield f"ruli_out_privacy_{name}_likelihood", _densities(target, shadows[shadow][:, :n]), TIGHT


def _densities(targets: Array, shadows: Array) -> Array:
    groups = np.zeros(shadows.shape[1], np.int64)
    target = np.ones(1, np.int64)
    rows = np.ascontiguousarray(shadows)
    found = [kernel_log_densities(np.array([x]), target, row, groups)[0] for x, row in zip(targets, rows, strict=True)]
    return np.asarray(np.exp(found))


def _gaussian(stored: Mapping[str, Array]) -> Values:
    sigma = float(stored["gus_par_sigma"])

    def slopes(theta: Array) -> Array:
        p = 1.0 / (1.0 + np.exp(-(stored["gus_in_x"] @ theta)))
        return (p - stored["gus_in_y"])[:, None] * theta

    def scores(theta: Array, noise: str) -> Array:
        return run_scores.noise_alignment(stored[noise], slopes(theta), deviation=sigma)

    thetas = stored["gus_in_theta"]
    trained = np.stack([scores(theta, "gus_in_noise") for theta in thetas])
    fresh = np.stack([scores(theta, "gus_in_fresh_noise") for theta in thetas])
    results = [run_scores.gaussian_score(row[None]) for row in trained]
    yield "gus_out_score", trained, TIGHT
    yield "gus_out_score_fresh", fresh, TIGHT
    yield "gus_out_mean", [result.table["mean"] for result in results], TIGHT
    yield "gus_out_z", [result.value for result in results], TIGHT
    yield "gus_out_tpr_1pct_normal_upper", [result.table["upper_share"] for result in results], TIGHT
    yield "gus_out_tpr_1pct_normal_lower", [result.table["lower_share"] for result in results], TIGHT
    areas = [area_against_fresh(*pair) for pair in zip(trained, fresh, strict=True)]
    yield "gus_out_auc_against_fresh", 1.0 - np.array(areas), TIGHT  # theirs ranks upwards
    yield "gus_deg_out_zero_gradient", scores(np.zeros_like(thetas[0]), "gus_in_noise"), TIGHT
    yield "gus_deg_out_saturated", scores(stored["gus_deg_in_saturated_theta"], "gus_in_noise"), TIGHT
    weight, labels = stored["gus_softmax_in_weight"], stored["gus_softmax_in_y"]
    logits = stored["gus_in_x"] @ weight.T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(labels.size), labels] -= 1.0
    softmax = run_scores.noise_alignment(stored["gus_in_noise"], p @ weight, deviation=sigma)
    yield "gus_softmax_out_score", softmax, TIGHT


SECTIONS = {
    "rmia": _rmia,
    "cp_": _bounds,
    "fdp": _one_run,
    "onerun": _one_run_strategies,
    "iam": _iam,
    "ruli": _ruli,
    "gus": _gaussian,
}
