"""How far the predictions on the forget set are from the retrained models', and from an untrained network's (ZRF)."""

from dataclasses import replace

import numpy as np

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.compiled import in_threads
from lethe.metrics.core.derived_arrays import jensen_shannon, mean_divergence, row_entropies
from lethe.metrics.core.registry import Direction, Feature, Metric, Resampling, both_sides
from lethe.metrics.core.result import MetricResult, mean_of_runs, mean_over_examples


def activation_l2(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the mean over runs and examples of the Euclidean distance of the predictions, in [0, sqrt(2)]; 0 is ideal.

    unlearned, retrained: probabilities, shapes (n_models, n_examples, n_classes) each, run i paired with model i.
    """
    distance = np.stack([np.sqrt(((a - b) ** 2).sum(axis=1)) for a, b in zip(unlearned, retrained, strict=True)])
    return mean_over_examples(distance)


ACTIVATION_L2 = Metric(
    title="Activation distance",
    function=activation_l2,
    needs=both_sides("forget_probabilities"),
    unit="L2 distance",
    paired=True,
    per_example=True,
    ideal=0.0,
    bounds=(0.0, float(np.sqrt(2.0))),
    resampling=Resampling.RUNS,
    source="Chundawat et al. 2023 (2205.08096), activation distance",
    formula="mean_i mean_x || p_u,i(x) - p_r,i(x) ||_2",
)


def activation_l1(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the mean L1 distance between the probabilities of paired models, in [0, 2]; 0 is ideal.

    unlearned, retrained: shape (n_models, n_examples, n_classes) each, rows that sum to one.
    per_run: mean over examples. per_example: mean over pairs.
    Source: Goel et al. 2022 (arXiv:2201.06640), table 1; their program, `activations_distance`.
    """
    return mean_over_examples(np.abs(unlearned - retrained).sum(axis=2))


ACTIVATION_L1 = replace(
    ACTIVATION_L2,
    id="activation_l1",
    title="L1 distance of probabilities",
    function=activation_l1,
    unit="L1 distance",
    bounds=(0.0, 2.0),
    source="Goel et al. 2022 (2201.06640), table 1",
    formula="mean_x sum_c |p_u(c|x) - p_r(c|x)|",
)


def js_to_retrained(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the mean over runs and examples of the Jensen-Shannon divergence in base 2, in [0, 1]; 0 is ideal.

    unlearned, retrained: probabilities, shapes (n_models, n_examples, n_classes) each, run i paired with model i.
    Source: Lin 1991 for the divergence; Chundawat et al. 2023 for comparing predictions by it.
    """
    pairs = zip(*(map(np.ascontiguousarray, side) for side in (unlearned, retrained)), strict=True)
    return mean_over_examples(np.stack(in_threads(lambda pair: jensen_shannon(*pair), pairs)))


JS_TO_RETRAINED = replace(
    ACTIVATION_L2,
    id="js_to_retrained",
    title="Jensen-Shannon divergence to retrained",
    function=js_to_retrained,
    unit="base 2, [0, 1]",
    bounds=(0.0, 1.0),
    source="Lin 1991, IEEE Transactions on Information Theory 37(1); Chundawat et al. 2023 (2205.08096)",
    formula="mean_i mean_x JS_2( p_u,i(x), p_r,i(x) )",
)


def disagreement(unlearned: Float64, retrained: Float64) -> MetricResult:
    """Return the share of forget examples on which paired models predict different classes, in [0, 1]; 0 is ideal.

    unlearned, retrained: network outputs or probabilities, shape (n_models, n_examples, n_classes) each; of equal
    outputs the first class counts. per_run: mean over examples. per_example: mean over pairs.
    """
    return mean_over_examples(unlearned.argmax(axis=2) != retrained.argmax(axis=2))


METRIC = Metric(
    title="Disagreement of predictions",
    function=disagreement,
    needs=both_sides("forget_logits"),
    unit="share of the forget set",
    ideal=0.0,
    paired=True,
    per_example=True,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Goel et al. 2022 (2201.06640), table 1",
    formula="mean_x [argmax p_u(x) != argmax p_r(x)]",
    paper_and_code="The program sums the differences of class numbers, which mean nothing for unordered classes.",
)


def zrf_per_model(unlearned: Float64, untrained: Float64) -> Float64:
    """Return 1 - the mean Jensen-Shannon divergence (base 2) from untrained networks, shape (n_models,), in [0, 1].

    unlearned: probabilities on the forget set, shape (n_models, n_examples, n_classes). untrained: of randomly
    initialised networks, shape (n_networks, n_examples, n_classes); the divergence is averaged over them.
    Source: Chundawat et al. 2023, ZRF.
    """
    p, q = np.ascontiguousarray(unlearned), np.ascontiguousarray(untrained)
    q_entropies = [row_entropies(network) for network in q]
    means = in_threads(lambda model: _mean_over_networks(model, q, q_entropies), p)
    return np.asarray(1.0 - np.clip(means, 0.0, 1.0))


def _mean_over_networks(model: Float64, networks: Float64, entropies: list[Float64]) -> float:
    own = row_entropies(model)
    divergences = [mean_divergence(model, q, own, entropy) for q, entropy in zip(networks, entropies, strict=True)]
    return sum(divergences) / len(divergences)


ZRF_PER_MODEL = Feature("zrf", zrf_per_model, arrays=("forget_probabilities",), shared=("random_forget_probabilities",))

ZRF = Metric(
    id="zrf",
    title="ZRF",
    function=mean_of_runs,
    needs=both_sides(ZRF_PER_MODEL),
    unit="[0, 1]",
    direction=Direction.TOWARDS_RETRAINED,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Chundawat et al. 2023 (2205.08096), ZRF; the MIAU paper, table 1, prints it in percent",
    formula="1 - mean_i mean_x JS_2( p_u,i(x), p_untrained(x) ), averaged over untrained networks",
    paper_and_code=(
        "The code computes a reversed divergence divided by the number of classes: that is zrf_published. A higher "
        "value means more like random, not better; compare it with the retrained models' value."
    ),
)


def zrf_published_per_model(unlearned: Float64, untrained: Float64) -> Float64:
    """Return 1 - (KL(m || p) + KL(m || q)) / 2 averaged over examples and classes, shape (n_models,), in nats.

    m is the mean of the two predictions p and q. Arguments as for `zrf_per_model`. -inf where a
    probability is 0 and the other is not.
    Source: the program of Chundawat et al. 2023, metrics.py.
    """
    p, q = np.ascontiguousarray(unlearned), np.ascontiguousarray(untrained)
    with np.errstate(divide="ignore"):
        q_logs = np.log(q)
        p_logs = (np.log(model) for model in p)
        means = [
            [_divergence(model, network, log, q_log) for network, q_log in zip(q, q_logs, strict=True)]
            for model, log in zip(p, p_logs, strict=True)
        ]
    return np.asarray(1.0 - np.asarray(means, np.float64).mean(axis=1))


def _divergence(first: Float64, second: Float64, first_log: Float64, second_log: Float64) -> float:
    middle = (first + second) / 2.0
    with np.errstate(divide="ignore"):
        middle_log = np.log(middle)
    return 0.5 * _mean_kl(middle, middle_log, first_log) + 0.5 * _mean_kl(middle, middle_log, second_log)


def _mean_kl(middle: Float64, middle_log: Float64, other_log: Float64) -> float:
    with np.errstate(invalid="ignore"):
        terms = middle * (middle_log - other_log)
    return float(np.where(middle > 0.0, terms, 0.0).mean())


_FEATURE = Feature(
    "zrf published", zrf_published_per_model, arrays=("forget_probabilities",), shared=("random_forget_probabilities",)
)

ZRF_PUBLISHED = replace(
    ZRF,
    id="zrf_published",
    title="ZRF as published",
    needs=both_sides(_FEATURE),
    unit="at most 1",
    bounds=(float("-inf"), 1.0),
    formula="1 - mean over examples and classes of ( m (log m - log p) + m (log m - log q) ) / 2, m = (p + q) / 2",
    paper_and_code=(
        "The paper says Jensen-Shannon; the program's divergence is reversed and divided by the number of classes, so "
        "its values lie near 1 for every model and grow with the number of classes. Infinite where a probability is 0."
    ),
)
