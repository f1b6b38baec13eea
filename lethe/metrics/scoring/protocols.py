"""Evaluation setups as data: how many models each needs, which runs use which, and E experiments made into one.

Source: Triantafillou et al. 2024, section 4, figure 2 and table 1.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.stats import t as student_t

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.arrays import Float64, Int64
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, AttackFamily
from lethe.metrics.scoring.score import ModelOutputs, Score, score

DEFAULT_POOL = 8
"""K / N of the bootstrap setup where none is given, as in the paper."""


class EvaluationSetup(StrEnum):
    """Which models the experiments of an evaluation share.

    REUSE_N_1: one original model and N retrained ones for all (the competition's, with N = 512 and E = 1).
    REUSE_N_N: N original models and N retrained ones for all. FULL: every experiment draws its own N of each.
    BOOTSTRAP: K triplets of original, unlearned and retrained model; experiments draw N with replacement.
    """

    REUSE_N_1 = "reuse-n-1"
    REUSE_N_N = "reuse-n-n"
    FULL = "full"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class SetupPlan:
    """A setup with its numbers: N models a side, E experiments, and K triplets (bootstrap alone; else None).

    Unlearning runs are numbered over the whole evaluation: run e * N + i is run i of experiment e (bootstrap: run k
    belongs to triplet k). Raises InvalidScoreInput for N < 2, E < 1, K < 2, or K given where it means nothing.
    """

    setup: EvaluationSetup
    n_models: int
    n_experiments: int = 1
    pool_size: int | None = None

    def __post_init__(self) -> None:
        if self.n_models < 2:
            raise InvalidScoreInput(f"a setup needs at least 2 models on each side, not {self.n_models}")
        if self.n_experiments < 1:
            raise InvalidScoreInput(f"a setup needs at least 1 experiment, not {self.n_experiments}")
        if self.setup is not EvaluationSetup.BOOTSTRAP and self.pool_size is not None:
            raise InvalidScoreInput(f"a pool size belongs to the bootstrap setup, not to {self.setup}")
        if self.pool_size is not None and self.pool_size < 2:
            raise InvalidScoreInput(f"the bootstrap needs a pool of at least 2 models, not {self.pool_size}")

    @property
    def pool(self) -> int:
        """K, by default 8 N."""
        return DEFAULT_POOL * self.n_models if self.pool_size is None else self.pool_size

    @property
    def n_original(self) -> int:
        """How many original models are trained."""
        return {
            EvaluationSetup.REUSE_N_1: 1,
            EvaluationSetup.REUSE_N_N: self.n_models,
            EvaluationSetup.FULL: self.n_models * self.n_experiments,
            EvaluationSetup.BOOTSTRAP: self.pool,
        }[self.setup]

    @property
    def n_retrained(self) -> int:
        """How many retrained models are trained."""
        return self.n_models if self.setup is EvaluationSetup.REUSE_N_1 else self.n_original

    @property
    def n_runs(self) -> int:
        """How many times the unlearning method runs."""
        if self.setup is EvaluationSetup.BOOTSTRAP:
            return self.pool
        return self.n_models * self.n_experiments

    def original_of_run(self, run: int) -> int:
        """Return the zero-based original model that an unlearning run starts from.

        Raises InvalidScoreInput for a run outside 0..n_runs - 1.
        """
        if not 0 <= run < self.n_runs:
            raise InvalidScoreInput(f"run {run} is not within 0..{self.n_runs - 1}")
        if self.setup is EvaluationSetup.REUSE_N_1:
            return 0
        return run % self.n_models if self.setup is EvaluationSetup.REUSE_N_N else run

    def models_of_experiment(self, experiment: int, *, seed: int = 0) -> tuple[Int64, Int64]:
        """Return the unlearning runs and the retrained models of an experiment, shape (n_models,) each.

        seed: of the bootstrap's draws, which take whole triplets. Raises InvalidScoreInput for another experiment.
        """
        if not 0 <= experiment < self.n_experiments:
            raise InvalidScoreInput(f"experiment {experiment} is not within 0..{self.n_experiments - 1}")
        if self.setup is EvaluationSetup.BOOTSTRAP:
            drawn = np.random.default_rng([seed, experiment]).integers(0, self.pool, self.n_models)
            return drawn, drawn
        own = np.arange(self.n_models) + experiment * self.n_models
        return own, own if self.setup is EvaluationSetup.FULL else np.arange(self.n_models)


@dataclass(frozen=True, eq=False)
class Experiments:
    """The scores of E experiments, and their means with 95 % Student intervals (None for E = 1).

    The interval covers what the experiments do not share; reused models are held fixed by it.
    """

    scores: tuple[Score, ...]
    headline: float
    interval: tuple[float, float] | None
    forgetting_quality: float
    forgetting_quality_interval: tuple[float, float] | None


def score_experiments(
    unlearned: ModelOutputs,
    retrained: ModelOutputs,
    plan: SetupPlan,
    *,
    attacks: AttackFamily = DEFAULT_ATTACKS,
    seed: int = 0,
) -> Experiments:
    """Score every experiment of a plan on stored outputs and aggregate.

    unlearned: of all runs in their order, n_runs models. retrained: n_retrained models. Other options: see `score`.
    Raises InvalidScoreInput if the numbers of models are not the plan's, and as `score` does.
    """
    _require_models(unlearned, plan.n_runs, side="unlearned", plan=plan)
    _require_models(retrained, plan.n_retrained, side="retrained", plan=plan)
    scores = []
    for experiment in range(plan.n_experiments):
        runs, models = plan.models_of_experiment(experiment, seed=seed)
        scores.append(score(_chosen(unlearned, runs), _chosen(retrained, models), attacks=attacks, seed=seed))
    headline, interval = mean_with_interval(np.array([one.headline for one in scores]))
    quality, quality_interval = mean_with_interval(np.array([one.forgetting_quality for one in scores]))
    return Experiments(tuple(scores), headline, interval, quality, quality_interval)


def mean_with_interval(values: Float64) -> tuple[float, tuple[float, float] | None]:
    """Return the mean of independent values and its 95 % Student interval, None for a single value.

    values: shape (n_experiments,), at least one.
    """
    mean = float(values.mean())
    n = values.size
    if n < 2:
        return mean, None
    reach = float(student_t.ppf(0.975, n - 1)) * float(values.std(ddof=1)) / n**0.5
    return mean, (mean - reach, mean + reach)


def _require_models(outputs: ModelOutputs, expected: int, *, side: str, plan: SetupPlan) -> None:
    found = np.asarray(outputs.confidences).shape[0]
    if found != expected:
        raise InvalidScoreInput(
            f"setup {plan.setup} with N = {plan.n_models} and E = {plan.n_experiments} needs {expected} {side} models, "
            f"not {found}",
            side=side,
        )


def _chosen(outputs: ModelOutputs, models: Int64) -> ModelOutputs:
    def rows(values: Float64 | None) -> Float64 | None:
        return None if values is None else np.asarray(values)[models]

    return ModelOutputs(
        np.asarray(outputs.confidences)[models], rows(outputs.retain_accuracy), rows(outputs.test_accuracy)
    )
