"""The setups of the paper's table 1, and several experiments made into one result."""

import numpy as np
import pytest

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.protocols import EvaluationSetup, SetupPlan, mean_with_interval, score_experiments
from lethe.metrics.scoring.score import ModelOutputs, score

FULL, BOOTSTRAP = EvaluationSetup.FULL, EvaluationSetup.BOOTSTRAP
REUSE_1, REUSE_N = EvaluationSetup.REUSE_N_1, EvaluationSetup.REUSE_N_N


@pytest.mark.parametrize(
    ("setup", "original", "retrained", "runs"),
    [(REUSE_1, 1, 512, 10240), (REUSE_N, 512, 512, 10240), (FULL, 10240, 10240, 10240), (BOOTSTRAP, 4096, 4096, 4096)],
)
def test_table_1(setup, original, retrained, runs):
    plan = SetupPlan(setup, n_models=512, n_experiments=20)
    assert (plan.n_original, plan.n_retrained, plan.n_runs) == (original, retrained, runs)


def test_the_competition_runs_512_times_from_one_model():
    plan = SetupPlan(REUSE_1, n_models=512)
    assert (plan.n_original, plan.n_runs) == (1, 512)
    assert {plan.original_of_run(i) for i in range(512)} == {0}


@pytest.mark.parametrize(
    ("setup", "originals"), [(REUSE_1, [0] * 6), (REUSE_N, [0, 1, 2, 0, 1, 2]), (FULL, [0, 1, 2, 3, 4, 5])]
)
def test_the_original_of_every_run(setup, originals):
    plan = SetupPlan(setup, n_models=3, n_experiments=2)
    assert [plan.original_of_run(run) for run in range(plan.n_runs)] == originals


@pytest.mark.parametrize(("setup", "retrained"), [(REUSE_1, [0, 1, 2]), (REUSE_N, [0, 1, 2]), (FULL, [3, 4, 5])])
def test_the_second_experiment_has_its_own_runs(setup, retrained):
    runs, models = SetupPlan(setup, n_models=3, n_experiments=2).models_of_experiment(1)
    assert (runs.tolist(), models.tolist()) == ([3, 4, 5], retrained)


def test_bootstrap_draws_triplets_by_seed_and_experiment():
    plan = SetupPlan(BOOTSTRAP, n_models=50, n_experiments=2, pool_size=60)
    runs, models = plan.models_of_experiment(0, seed=1)
    np.testing.assert_array_equal(runs, models)
    np.testing.assert_array_equal(runs, plan.models_of_experiment(0, seed=1)[0])
    assert len(set(runs.tolist())) < 50
    assert not np.array_equal(runs, plan.models_of_experiment(1, seed=1)[0])
    assert not np.array_equal(runs, plan.models_of_experiment(0, seed=2)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"setup": FULL, "n_models": 1}, "at least 2 models"),
        ({"setup": FULL, "n_models": 2, "n_experiments": 0}, "at least 1 experiment"),
        ({"setup": FULL, "n_models": 2, "pool_size": 9}, "belongs to the bootstrap"),
        ({"setup": BOOTSTRAP, "n_models": 2, "pool_size": 1}, "pool of at least 2"),
    ],
)
def test_a_plan_without_sense_is_refused(arguments, message):
    with pytest.raises(InvalidScoreInput, match=message):
        SetupPlan(**arguments)


@pytest.mark.parametrize("run", [-1, 6])
def test_a_run_outside_the_plan_is_refused(run):
    with pytest.raises(InvalidScoreInput, match=r"not within 0\.\.5"):
        SetupPlan(FULL, n_models=3, n_experiments=2).original_of_run(run)


def test_an_experiment_outside_the_plan_is_refused():
    with pytest.raises(InvalidScoreInput, match="experiment 2"):
        SetupPlan(FULL, n_models=3, n_experiments=2).models_of_experiment(2)


def outputs(seed, n_models):
    rng = np.random.default_rng(seed)
    return ModelOutputs(rng.normal(0, 1, (n_models, 10)), rng.uniform(0.8, 1, n_models), rng.uniform(0.6, 1, n_models))


@pytest.mark.parametrize(("setup", "n_retrained"), [(REUSE_1, 16), (REUSE_N, 16), (FULL, 48)])
def test_experiments_are_scored_each_on_its_own_models(setup, n_retrained):
    plan = SetupPlan(setup, n_models=16, n_experiments=3)
    u, r = outputs(0, 48), outputs(1, n_retrained)
    found = score_experiments(u, r, plan)
    own = slice(32, 48) if setup is FULL else slice(0, 16)
    last = score(
        ModelOutputs(u.confidences[32:], u.retain_accuracy[32:], u.test_accuracy[32:]),
        ModelOutputs(r.confidences[own], r.retain_accuracy[own], r.test_accuracy[own]),
    )
    assert found.scores[2].final_score == last.final_score
    assert found.headline == pytest.approx(np.mean([one.final_score for one in found.scores]))
    assert found.interval[0] < found.headline < found.interval[1]


def test_the_bootstrap_scores_its_draws():
    plan = SetupPlan(BOOTSTRAP, n_models=16, n_experiments=2, pool_size=40)
    u, r = outputs(0, 40), outputs(1, 40)
    runs, models = plan.models_of_experiment(1, seed=3)
    expected = score(ModelOutputs(u.confidences[runs]), ModelOutputs(r.confidences[models]), seed=3)
    assert score_experiments(u, r, plan, seed=3).scores[1].forgetting_quality == expected.forgetting_quality


def test_another_number_of_models_than_the_plans_is_refused():
    with pytest.raises(InvalidScoreInput, match="needs 48 unlearned models, not 47"):
        score_experiments(outputs(0, 47), outputs(1, 48), SetupPlan(FULL, n_models=16, n_experiments=3))


def test_students_interval_by_hand():
    # Three values with standard deviation 1: t(0.975, 2) = 4.302653.
    mean, (low, high) = mean_with_interval(np.array([1.0, 2.0, 3.0]))
    assert mean == 2.0
    assert (high - 2.0, 2.0 - low) == pytest.approx((4.302653 / 3**0.5,) * 2, rel=1e-6)


def test_a_single_experiment_has_no_interval():
    assert mean_with_interval(np.array([0.5])) == (0.5, None)
