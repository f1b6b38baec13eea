"""A membership attack on the losses of forget against test examples."""

import numpy.typing as npt
from pydantic import Field

from lethe.metrics.array_catalogue import Side
from lethe.metrics.arrays import Float64
from lethe.metrics.loss_attack import attack_accuracies
from lethe.metrics.registry import Direction, Feature, Metric, Need, Parameters, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.run_means import mean_share


class AttackParameters(Parameters):
    """n_splits: random splits per model. seed: draws the examples of the larger set."""

    n_splits: int = Field(10, ge=1)
    seed: int = Field(0, ge=0)


def umia(unlearned: npt.ArrayLike, retrained: npt.ArrayLike) -> MetricResult:
    """Return the mean accuracy of the attack over models, in [0, 1]; 0.5 is chance.

    unlearned, retrained: the attack's accuracy on every model, shape (n_models,) each, from
    `forget_test_attack`.
    per_run: of the unlearned. table: the mean of the retrained.
    Compare with the retrained models: below 0.5 is no better than above.
    Raises InvalidMetricInput for values outside [0, 1].
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.3: U-MIA against the test set (T-MIA).
    """
    return mean_share(unlearned, retrained, name="attack accuracies")


def forget_test_attack(forget: npt.ArrayLike, test: npt.ArrayLike, *, n_splits: int, seed: int) -> Float64:
    """Return the attack's accuracy on every model, shape (n_models,).

    forget, test: losses, shape (n_models, n_forget) and (n_models, n_test), at least 6 examples each.
    """
    return attack_accuracies(forget, test, n_splits=n_splits, seed=seed)


FORGET_TEST_ATTACK = Feature(
    "umia_accuracy", forget_test_attack, ("forget_loss", "test_loss"), parameters=("n_splits", "seed")
)

METRIC = Metric(
    id="umia",
    title="Membership attack on losses (U-MIA)",
    function=umia,
    needs={"unlearned": Need(FORGET_TEST_ATTACK), "retrained": Need(FORGET_TEST_ATTACK, Side.RETRAINED)},
    unit="accuracy",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=AttackParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Cadet et al. 2024 (2410.01276), section 5.3",
    formula="mean held-out accuracy of logistic regression, losses of forget against test examples",
    paper_and_code="The paper says 10-fold cross-validation; the program makes 10 stratified shuffle splits with 10 % "
    "held out, and so does this. The published figure is of one model and one shuffle of NumPy's global generator.",
)
