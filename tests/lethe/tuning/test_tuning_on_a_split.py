"""Tuning on a prepared split, with runs in child processes and the split's own retrained models."""

import numpy as np
import pytest

from lethe.preparation.prepare import prepare_split
from lethe.tuning.tuning import make_question, tune
from tests.lethe.conftest import competition

pytestmark = pytest.mark.usefixtures("quick_children")


@pytest.fixture(scope="module")
def with_losses(tmp_path_factory):
    """A prepared split that stores losses, as a competition with such a metric does."""
    out = tmp_path_factory.mktemp("splits") / "public"
    prepare_split(competition(report={"capture": 1}), "public", out)
    return out


def question(split, objective):
    return make_question("finetune", split, objective=objective, search="random", points=2, runs=3, seed=0)


def test_deep_unlearn_search_goes_on_with_its_trials(with_losses, tmp_path):
    asked, file = question(with_losses, "deepunlearn_objective"), tmp_path / "s.json"
    first = tune(asked, with_losses, file, budget_s=1e-6)
    second = tune(asked, with_losses, file, budget_s=first.device_time_s + 1e-6)
    assert (len(first.trials), len(second.trials)) == (1, 2)
    assert second.trials[0] == first.trials[0]
    for trial in second.trials:
        assert len(trial.losses) == 4, trial.failure
        assert trial.value == pytest.approx(np.linalg.norm(trial.losses))


def test_split_without_losses_says_what_is_missing(prepared, tmp_path):
    study = tune(question(prepared, "deepunlearn_objective"), prepared, tmp_path / "s.json", budget_s=1e-6)
    assert "needs forget_loss" in study.trials[0].failure


def test_objective_of_any_metric_takes_fewer_runs_than_retrained_models(with_losses, tmp_path):
    study = tune(question(with_losses, "accuracy_gap"), with_losses, tmp_path / "s.json", budget_s=1e-6)
    assert study.trials[0].failure == ""
    assert 0.0 <= study.best.value <= 1.0
