"""A membership attack on the losses of forget against test examples, and how close it is to chance."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.attacks.scalar_attack import split_accuracies, stratified_splits
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Feature, Metric, Need, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult
from lethe.metrics.core.run_means import mean_of_runs

SPLIT_SEED = 123
TEST_SHARE = 0.1


class AttackParameters(Parameters):
    """n_splits: random splits per model. seed: draws the examples of the larger set."""

    n_splits: int = Field(10, ge=1)
    seed: int = Field(0, ge=0)


def forget_test_attack(forget: Float64, test: Float64, *, n_splits: int, seed: int) -> Float64:
    """Return the attack's mean held-out accuracy on every model, shape (n_models,), in [0, 1]; 0.5 is chance.

    forget, test: losses, shape (n_models, n_forget) and (n_models, n_test), at least 6 examples each.
    Of the larger set a random part is used. Examples are taken in ascending order of their value, so that their
    order does not matter, and `seed` draws the same ranks for every model.
    """
    pairs = [shuffled(x, y, seed=seed) for x, y in zip(np.sort(forget), np.sort(test), strict=True)]
    first, second = (np.stack(part) for part in zip(*pairs, strict=True))
    return np.array([accuracies.mean() for accuracies in held_out_accuracies(first, second, n_splits=n_splits)])


def shuffled(forget: Float64, test: Float64, *, seed: int) -> tuple[Float64, Float64]:
    """Return both sets in random order, cut to the size of the smaller; shape (n,) each."""
    order = np.random.RandomState(seed)  # the generator of the published programs
    mixed = {}
    for name, values in (("test", test), ("forget", forget)):
        mixed[name] = values.copy()
        order.shuffle(mixed[name])
    n = min(forget.size, test.size)
    return mixed["forget"][:n], mixed["test"][:n]


def held_out_accuracies(forget: Float64, test: Float64, *, n_splits: int = 10) -> Float64:
    """Return the accuracy on the held-out tenth of every split, shape (n_models, n_splits).

    forget, test: shape (n_models, n) each. Test examples are the members, as in the program; it has no effect.
    Source: Cadet et al. 2024, program: `StratifiedShuffleSplit` with random_state 123 and scikit-learn's regression.
    """
    size = forget.shape[1]
    train, held = stratified_splits(size, n_splits=n_splits, test_share=TEST_SHARE, seed=SPLIT_SEED)
    values = np.concatenate((forget, test), axis=1)
    return split_accuracies(values, np.repeat([0, 1], size), train, held, solver="lbfgs")


FORGET_TEST_ATTACK = Feature(
    "umia_accuracy", forget_test_attack, ("forget_loss", "test_loss"), parameters=("n_splits", "seed")
)

UMIA = Metric(
    id="umia",
    title="Membership attack on losses (U-MIA)",
    function=mean_of_runs,
    needs=both_sides(FORGET_TEST_ATTACK, retrained_optional=True),
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


def indiscernibility(unlearned: Float64) -> MetricResult:
    """Return the mean of 1 - |accuracy - 0.5| / 0.5 over models, in [0, 1]; 1 where the attack is at chance.

    unlearned: the attack's accuracy on every model, shape (n_models,). per_run: the value of every model.
    An attack that is always wrong scores 0, as one that is always right. A value above that of the retrained models
    is not better: they have the value of exact unlearning.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.3.
    """
    values = distance_from_certainty(unlearned)
    return MetricResult(float(values.mean()), per_run=values)


def distance_from_certainty(accuracy: npt.ArrayLike) -> Float64:
    """Return 1 - |accuracy - 0.5| / 0.5, same shape."""
    return np.asarray(1.0 - np.abs(np.asarray(accuracy, np.float64) - 0.5) / 0.5)


INDISCERNIBILITY = replace(
    UMIA,
    id="indiscernibility",
    title="Indiscernibility",
    function=indiscernibility,
    needs={"unlearned": Need(FORGET_TEST_ATTACK)},
    unit="1 - |accuracy - 0.5| / 0.5",
    direction=Direction.HIGHER,
    formula="mean_i 1 - |U-MIA_i - 1/2| / (1/2)",
    paper_and_code="",
)
