"""Zero-retrain forgetting: how near the predictions on the forget set are to an untrained network's."""

import numpy as np
import numpy.typing as npt

from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import Float64, probability_rows, require_same_classes, require_same_examples
from lethe.metrics.epsilon.processors import in_threads
from lethe.metrics.jensen_shannon import mean_divergence, row_entropies
from lethe.metrics.registry import Direction, Feature, Metric, Need, Resampling
from lethe.metrics.result import MetricResult


def zrf_per_model(unlearned: npt.ArrayLike, untrained: npt.ArrayLike) -> Float64:
    """Return 1 - the mean Jensen-Shannon divergence (base 2) from untrained networks, shape (n_models,), in [0, 1].

    unlearned: probabilities on the forget set, shape (n_models, n_examples, n_classes). untrained: of randomly
    initialised networks, shape (n_networks, n_examples, n_classes); the divergence is averaged over them.
    Raises InvalidMetricInput for rows that are no probabilities, different examples or classes.
    Source: Chundawat et al. 2023, ZRF.
    """
    p, q = checked_zrf_inputs(unlearned, untrained)
    q_entropies = [row_entropies(network) for network in q]
    means = in_threads(lambda model: _mean_over_networks(model, q, q_entropies), p)
    return np.asarray(1.0 - np.clip(means, 0.0, 1.0))


def _mean_over_networks(model: Float64, networks: Float64, entropies: list[Float64]) -> float:
    own = row_entropies(model)
    divergences = [mean_divergence(model, q, own, entropy) for q, entropy in zip(networks, entropies, strict=True)]
    return sum(divergences) / len(divergences)


def checked_zrf_inputs(unlearned: npt.ArrayLike, untrained: npt.ArrayLike) -> tuple[Float64, Float64]:
    """Return both checked and contiguous, of the same examples and classes."""
    p = probability_rows(unlearned, name="probabilities", side=Side.UNLEARNED)
    q = probability_rows(untrained, name="probabilities", side="untrained networks'")
    require_same_examples(unlearned=p, untrained=q)
    require_same_classes(unlearned=p, untrained=q)
    return np.ascontiguousarray(p), np.ascontiguousarray(q)


def mean_zrf(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean over runs; the retrained models' mean, in the table, is the aim.

    unlearned, retrained: ZRF of every model, shape (n_models,) each.
    """
    u, r = np.asarray(unlearned, np.float64), np.asarray(retrained, np.float64)
    return MetricResult(float(u.mean()), per_run=u, table={"retrained": float(r.mean())})


ZRF = Feature("zrf", zrf_per_model, arrays=("forget_probabilities",), shared=("random_forget_probabilities",))

METRIC = Metric(
    id="zrf",
    title="ZRF",
    function=mean_zrf,
    needs={"unlearned": Need(ZRF), "retrained": Need(ZRF, Side.RETRAINED)},
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
