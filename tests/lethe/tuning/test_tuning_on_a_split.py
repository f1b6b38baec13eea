"""Tuning on a prepared split, with runs in child processes and the split's own retrained models."""

import numpy as np
import pytest

from lethe.methods.rendering import read_method
from lethe.preparation.prepare import prepare_split
from lethe.tuning.study import SearchPlan
from lethe.tuning.tuning import make_question, tune
from tests.lethe.conftest import competition

pytestmark = pytest.mark.usefixtures("quick_children")


@pytest.fixture(scope="module")
def with_losses(tmp_path_factory):
    """A prepared split that stores losses, as a competition with such a metric does."""
    out = tmp_path_factory.mktemp("splits") / "public"
    prepare_split(competition(report={"capture": 1}), "public", out)
    return out


def tuned(split, file, objective="score", method="finetune", **options):
    plan = SearchPlan(**{"trials": 2, "runs": 4, "halvings": 1, "objective": objective} | options)
    name, source = read_method(str(method))
    return tune(make_question(name, source, split, plan), source, plan, split_dir=split, study_file=file)


def test_deep_unlearn_search_goes_on_with_its_trials(with_losses, tmp_path):
    first = tuned(with_losses, tmp_path / "s.json", "deepunlearn_objective", trials=1)
    second = tuned(with_losses, tmp_path / "s.json", "deepunlearn_objective", trials=2)
    assert (len(first.trials), len(second.trials)) == (1, 2)
    assert second.trials[0].scores[0] == first.trials[0].scores[0]
    for trial in second.trials:
        assert len(trial.scores[0].losses) == 4, trial.failure
        assert trial.scores[0].value == pytest.approx(np.linalg.norm(trial.scores[0].losses))


def test_split_without_losses_says_what_is_missing(prepared, tmp_path):
    study = tuned(prepared, tmp_path / "s.json", "deepunlearn_objective")
    assert "needs forget_loss" in study.trials[0].failure
    assert study.ended
    assert study.chosen is None


def test_objective_of_any_metric_takes_fewer_runs_than_retrained_models(with_losses, tmp_path):
    study = tuned(with_losses, tmp_path / "s.json", "accuracy_gap")
    assert study.trials[0].failure == ""
    assert 0.0 <= study.best.fresh.value <= 1.0


def test_work_of_a_search_is_counted_whatever_the_clock_says(prepared, tmp_path):
    first, again = (tuned(prepared, tmp_path / name / "s.json") for name in ("a", "b"))
    assert [trial.work_epochs for trial in first.trials] == [trial.work_epochs for trial in again.trials]
    own = first.trials[0]
    # the file's own constants: one epoch a run; 4 runs of the search (if it stayed), 4 fresh ones
    assert own.work_epochs == pytest.approx((own.scores[-1].runs + own.fresh.runs) * own.settings["EPOCHS"])
    assert [trial.model_dump(exclude={"cpu_time_s"}) for trial in first.trials] == [
        trial.model_dump(exclude={"cpu_time_s"}) for trial in again.trials
    ]


def test_file_of_ones_own_is_tuned(with_losses, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\nSTEP = 0.0  # lethe: tune STEP = choice(0.0, 0.5)\n"
        "def unlearning(net, retain_loader, forget_loader, val_loader):\n"
        "    for p in net.parameters():\n        p.data += STEP * torch.randn_like(p)\n"
    )
    study = tuned(with_losses, tmp_path / "s.json", "accuracy_gap", tmp_path / "mine.py", trials=3, search="grid")
    assert {trial.settings["STEP"] for trial in study.trials} == {0.0, 0.5}
    assert study.best.settings["STEP"] in {0.0, 0.5}
    assert study.best.fresh.value == min(trial.fresh.value for trial in study.trials if trial.fresh)
