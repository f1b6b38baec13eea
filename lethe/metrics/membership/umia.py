"""Membership attacks on losses of forget against test examples: accuracy, distance from chance, examples hit always."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lethe.metrics.attacks.membership_features import LOSS_ATTACK, ShuffleSplits
from lethe.metrics.attacks.scalar_attack import fit_lbfgs, split_accuracies, stratified_splits
from lethe.metrics.core.arrays import Bool, Float64, Int64
from lethe.metrics.core.compiled import one_blas_thread
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Feature, Metric, Need, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult, mean_of_runs


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
    train, held = stratified_splits(size, n_splits=n_splits, test_share=0.1, seed=123)
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


class NomusParameters(ShuffleSplits):
    """weight: of the test accuracy; the rest is the weight of forgetting."""

    seed: int = Field(0, ge=0)
    weight: float = Field(0.5, ge=0.0, le=1.0)


def nomus(test_accuracy: Float64, attack_accuracy: Float64, *, weight: float = 0.5) -> MetricResult:
    """Return the mean over runs of weight * test accuracy + (1 - weight) * (1 - 2 |MIA - 1/2|), in [0, 1].

    test_accuracy, attack_accuracy: one per model, shape (n_models,) each; the attack tells forget from unseen losses.
    table: the mean distance |MIA - 1/2|.
    """
    distance = np.abs(attack_accuracy - 0.5)
    per_run = weight * test_accuracy + (1.0 - weight) * (1.0 - 2.0 * distance)
    return MetricResult(float(per_run.mean()), per_run=per_run, table={"forgetting_score": float(distance.mean())})


NOMUS = Metric(
    title="NoMUS",
    function=nomus,
    needs={"test_accuracy": Need("test_accuracy"), "attack_accuracy": Need(LOSS_ATTACK)},
    unit="[0, 1]",
    direction=Direction.HIGHER,
    defaults=NomusParameters,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Choi and Na 2023 (2311.02240), NoMUS",
    formula="mean_i ( TA_i + 1 - 2 |MIA_i - 1/2| ) / 2, MIA as mia_loss with seed 0",
    paper_and_code="The program prints |MIA - 1/2| as its forgetting score; it is in the table.",
)


class FoldParameters(Parameters):
    """n_folds: of the cross-validation. seed: draws test examples and folds."""

    n_folds: int = Field(10, ge=2)
    seed: int = Field(0, ge=0)


def consistent_unforgettability(unlearned: Bool, retrained: Bool) -> MetricResult:
    """Return the share of forget examples that the attack calls members in every model, in [0, 1].

    unlearned, retrained: whether an example was called a member, bool, shape (n_models, n_examples), from `hits`.
    per_example: in how many unlearned models. table: the same share of the retrained models; for both, the share hit in
    at least half of the models; and what independent hits at the retrained models' mean rate would give.
    Source: Cadet et al. 2024 (arXiv:2410.01276), section 5.7 and figure 2, with 10 models.
    """
    from scipy.stats import binom  # noqa: PLC0415  slow to import, needed here and below

    u, r = np.asarray(unlearned, np.float64), np.asarray(retrained, np.float64)
    n_models, rate = len(u), float(r.mean())
    table = {
        "half": float((u.mean(axis=0) >= 0.5).mean()),
        "retrained": float(r.all(axis=0).mean()),
        "retrained_half": float((r.mean(axis=0) >= 0.5).mean()),
        "expected_all": rate**n_models,
        "expected_half": float(binom.sf(np.ceil(n_models / 2) - 1, n_models, rate)),
    }
    return MetricResult(float(u.all(axis=0).mean()), per_example=u.sum(axis=0), table=table)


def chance_bound(expected: float, n_examples: int) -> float:
    """Return the 97.5th percentile of the share of examples hit in every model, if hits were independent.

    expected: the probability that an example is hit in every model, `expected_all`.
    """
    from scipy.stats import binom  # noqa: PLC0415

    return float(binom.ppf(0.975, n_examples, expected)) / n_examples


def hits(forget: Float64, test: Float64, *, n_folds: int = 10, seed: int = 0) -> Bool:
    """Return whether each forget example is called a member by an attack that was not trained on it.

    forget, test: losses, shape (n_models, n_forget) and (n_models, n_test). Equally many of both are used, in
    ascending order of loss, so that the order of examples does not matter; n_test may not be below n_forget.
    Returns bool, shape (n_models, n_forget). Source: Cadet et al. 2024, section 5.7: each fold is predicted once.
    """
    n_forget, n_test = forget.shape[1], test.shape[1]
    if n_test < n_forget or not 2 <= n_folds <= n_forget:
        raise InvalidMetricInput(
            f"as many test as forget examples and 2 to {n_forget} folds are needed: {n_test} test examples, "
            f"{n_forget} forget examples, {n_folds} folds"
        )
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.permutation(n_test)[:n_forget])
    folds = np.concatenate([generator.permutation(n_forget) % n_folds for _ in range(2)])
    with one_blas_thread():
        return np.array(
            [_hits_of_model(x, np.sort(y)[chosen], folds, n_folds) for x, y in zip(forget, test, strict=True)]
        )


def _hits_of_model(forget: Float64, test: Float64, folds: Int64, n_folds: int) -> Bool:
    order = np.argsort(forget, kind="stable")
    values = np.concatenate((forget[order], test))
    member = np.repeat([True, False], forget.size)
    called = np.empty(forget.size, dtype=bool)
    for fold in range(n_folds):
        slope, intercept = fit_lbfgs(values[folds != fold], member[folds != fold])
        held = order[folds[: forget.size] == fold]
        called[held] = slope * forget[held] + intercept > 0
    return called


HITS = Feature("loss_attack_hits", hits, ("forget_loss", "test_loss"), parameters=("n_folds", "seed"))

CONSISTENT_UNFORGETTABILITY = Metric(
    title="Consistent unforgettability",
    function=consistent_unforgettability,
    needs=both_sides(HITS),
    unit="share of the forget set",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=FoldParameters,
    per_example=True,
    bounds=(0.0, 1.0),
    source="Cadet et al. 2024 (2410.01276), section 5.7",
    formula="mean_x [hit_i(x) for all i], hit: cross-validated logistic regression on losses says member",
    paper_and_code="No program is published. The paper uses 10 models; with more, fewer examples are hit in all.",
)
