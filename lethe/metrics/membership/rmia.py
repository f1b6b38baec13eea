"""RMIA: a run's probability of an example against retrained models, judged against a population of test examples."""

import numpy as np
from pydantic import Field

from lethe.metrics.attacks.roc import roc_curve
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters
from lethe.metrics.core.result import MetricResult


class RmiaParameters(Parameters):
    """offline_a: how far unseen the mean of the retrained models is taken to be. gamma: the ratio to exceed."""

    offline_a: float = Field(0.3, ge=0.0, le=1.0)
    gamma: float = Field(1.0, gt=0.0)


def rmia(
    unlearned: Float64,
    retrained: Float64,
    unlearned_population: Float64,
    retrained_population: Float64,
    *,
    offline_a: float = 0.3,
    gamma: float = 1.0,
) -> MetricResult:
    """Return the area under the ROC curve of unlearned against retrained runs, mean over examples; 0.5 is ideal.

    unlearned, retrained: probabilities of the true class on the forget set, shapes (n_models, n_examples).
    unlearned_population, retrained_population: the same on test examples, shapes (n_models, n_population).
    All retrained models are OUT; each retrained model is scored against the others. per_example: the area of every
    example. table: the mean score of both sides.
    Raises InvalidMetricInput for one retrained model.
    Source: Zarifzadeh et al. 2024 (arXiv:2312.03262); ml_privacy_meter, modules/mia/attacks/rmia.py.
    """
    u, r, u_pop, r_pop = unlearned, retrained, unlearned_population, retrained_population
    if len(r) < 2:
        raise InvalidMetricInput(
            "retrained models are scored against one another: give at least 2", side=Side.RETRAINED
        )
    ours = np.stack(
        [
            scores(row, r, population, r_pop, offline_a=offline_a, gamma=gamma)
            for row, population in zip(u, u_pop, strict=True)
        ]
    )
    theirs = leave_one_out(r, r_pop, offline_a=offline_a, gamma=gamma)
    members = np.repeat([True, False], (len(u), len(r)))
    areas = np.array([roc_curve(np.concatenate(pair), members).area for pair in zip(ours.T, theirs.T, strict=True)])
    table = {"score": float(ours.mean()), "retrained_score": float(theirs.mean())}
    return MetricResult(float(areas.mean()), per_example=areas, table=table)


def leave_one_out(retrained: Float64, population: Float64, *, offline_a: float, gamma: float) -> Float64:
    """Return the scores of every retrained model with the others as OUT, shape (n_models, n_examples)."""
    n = len(retrained)
    means = [(side.sum(axis=0) - side) / (n - 1) for side in (retrained, population)]
    return np.stack(
        [
            _scores(retrained[i], means[0][i], population[i], means[1][i], offline_a=offline_a, gamma=gamma)
            for i in range(n)
        ]
    )


def scores(
    target: Float64,
    out: Float64,
    target_population: Float64,
    out_population: Float64,
    *,
    offline_a: float,
    gamma: float,
) -> Float64:
    """Return the share of the population that every example of one model exceeds by more than gamma, (n_examples,).

    target: shape (n_examples,); out: (n_out, n_examples); the population's likewise. A tie scores 0.
    """
    means = out.mean(axis=0), out_population.mean(axis=0)
    return _scores(target, means[0], target_population, means[1], offline_a=offline_a, gamma=gamma)


def _scores(
    target: Float64, out: Float64, population: Float64, out_population: Float64, *, offline_a: float, gamma: float
) -> Float64:
    ratio, reference = _ratio(target, out, offline_a), np.sort(gamma * _ratio(population, out_population, offline_a))
    known = reference[~np.isnan(reference)]
    above = np.searchsorted(known, ratio, side="left")
    return np.where(np.isnan(ratio), 0.0, above / reference.size)


def _ratio(probability: Float64, out: Float64, offline_a: float) -> Float64:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(probability / ((1.0 + offline_a) / 2.0 * out + (1.0 - offline_a) / 2.0))


METRIC = Metric(
    id="rmia",
    title="RMIA against retrained models",
    function=rmia,
    needs={
        "unlearned": Need("forget_probability"),
        "retrained": Need("forget_probability", Side.RETRAINED),
        "unlearned_population": Need("test_probability"),
        "retrained_population": Need("test_probability", Side.RETRAINED),
    },
    unit="area under the ROC curve",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=RmiaParameters,
    per_example=True,
    bounds=(0.0, 1.0),
    source="Zarifzadeh et al. 2024 (2312.03262)",
    formula=(
        "score(x) = share over test examples z of [ (p(x) / pbar(x)) / (p(z) / pbar(z)) > gamma ], "
        "pbar = (1 + a) / 2 mean_R p + (1 - a) / 2; mean over x of the AUC of unlearned against retrained runs"
    ),
    paper_and_code=(
        "The paper writes >=, the program >, and so does this: ties score 0. The program's default averages the larger "
        "half of the OUT probabilities, for paired training; retrained models are all OUT, so all count. Its a "
        "is tuned "
        "on a paired model unless given; here it is given, as its argument's default."
    ),
)
