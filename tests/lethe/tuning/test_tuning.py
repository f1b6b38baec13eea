"""A search within its budget, stored after every trial and taken up again."""

import math
import sys

import pytest

from lethe.errors import InvalidInput
from lethe.tuning import tuning
from lethe.tuning.local_run import LocalRuns
from lethe.tuning.optuna_search import optuna_sampler
from lethe.tuning.search_space import random_settings, search_ranges
from lethe.tuning.study import Question, Study, Trial
from lethe.tuning.tuning import make_question, tune


def question(split, **changed):
    given = {"objective": "score", "search": "random", "points": 2, "runs": 2, "seed": 0} | changed
    return make_question("finetune", split, **given)


@pytest.fixture
def split(tmp_path):
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "manifest.json").write_text("{}")
    return tmp_path / "split"


@pytest.fixture
def quick(monkeypatch):
    """Trials of 2 s whose value is the epochs that were set; those of three epochs fail."""

    def run_on_split(files, split_dir, *, runs, seed, weights_dir):
        epochs = int(next(line for line in files["finetune.py"].splitlines() if line.startswith("EPOCHS = "))[9])
        if epochs == 3:
            raise InvalidInput("three is too many")
        (weights_dir / "epochs").write_text(str(epochs))
        return LocalRuns([{"wall_time_s": 1.0}] * runs, 1.0, 0.0, 0.0)

    monkeypatch.setattr(tuning, "run_on_split", run_on_split)
    monkeypatch.setattr(
        tuning, "_value", lambda objective, split_dir, models: (float((models / "epochs").read_text()), [])
    )


def study_settings(study):
    return [trial.settings for trial in study.trials]


def test_search_ends_with_its_budget(split, quick, tmp_path):
    study = tune(question(split), split, tmp_path / "s.json", budget_s=5.0)
    scored = [trial for trial in study.trials if trial.value is not None]
    assert len(scored) == 3  # the third begins at 4 s
    assert study.best.value == max(trial.value for trial in scored)


def test_search_that_is_taken_up_goes_on_as_one(split, quick, tmp_path):
    for budget_s in (3.0, 9.0):
        parts = tune(question(split), split, tmp_path / "parts.json", budget_s=budget_s)
    whole = tune(question(split), split, tmp_path / "whole.json", budget_s=9.0)
    assert study_settings(parts) == study_settings(whole)
    assert Study.open(tmp_path / "parts.json", question(split)) == parts


def test_the_seed_chooses_the_settings_and_the_runs(split, monkeypatch, tmp_path):
    seeds = []

    def run_on_split(files, split_dir, *, runs, seed, weights_dir):
        seeds.append(seed)
        return LocalRuns([{"wall_time_s": 1.0}] * runs, 1.0, 0.0, 0.0)

    monkeypatch.setattr(tuning, "run_on_split", run_on_split)
    monkeypatch.setattr(tuning, "_value", lambda *_: (1.0, []))
    studies = [
        tune(question(split, seed=seed), split, tmp_path / f"{seed}.json", budget_s=1e-9 + 2 * 3) for seed in (5, 6)
    ]
    first, second = map(study_settings, studies)
    assert len(first) == len(second) > 1
    assert all(one != other for one, other in zip(first, second, strict=True))
    assert set(seeds[: len(first)]) == {5}
    assert set(seeds[len(first) :]) == {6}
    assert first == [random_settings(search_ranges("finetune"), seed=5, trial=trial) for trial in range(len(first))]


def test_used_budget_runs_nothing_more(split, quick, tmp_path):
    first = tune(question(split), split, tmp_path / "s.json", budget_s=3.0)
    assert tune(question(split), split, tmp_path / "s.json", budget_s=3.0) == first


def test_grid_ends_when_all_was_tried(split, quick, tmp_path):
    study = tune(question(split, search="grid"), split, tmp_path / "s.json", budget_s=1e9)
    assert len(study.trials) == len({tuple(settings.values()) for settings in study_settings(study)}) == 16


def test_failed_trial_is_kept_and_never_the_best(split, quick, tmp_path):
    study = tune(question(split, search="grid", points=6), split, tmp_path / "s.json", budget_s=1e9)
    failed = [trial for trial in study.trials if trial.value is None]
    assert failed
    assert all(trial.failure == "three is too many" for trial in failed)
    assert study.best.value == 6.0


def test_lower_value_is_better_where_the_metric_says_so(split):
    study = Study(question=question(split, objective="klom"), trials=[Trial(settings={}, value=v) for v in (3, 1, 2)])
    assert study.best.value == 1.0


def test_study_of_another_question_is_refused(split, quick, tmp_path):
    tune(question(split), split, tmp_path / "s.json", budget_s=1.0)
    with pytest.raises(InvalidInput, match="study of seed 0, not 1"):
        tune(question(split, seed=1), split, tmp_path / "s.json", budget_s=9.0)


def test_file_that_is_no_study_is_refused(split, tmp_path):
    (tmp_path / "s.json").write_text("[1, 2]")
    with pytest.raises(InvalidInput, match="no study"):
        tune(question(split), split, tmp_path / "s.json", budget_s=1.0)


def test_study_says_that_it_used_retrained_models(split, quick, tmp_path):
    tune(question(split), split, tmp_path / "s.json", budget_s=1.0)
    assert '"reference_tuned": true' in (tmp_path / "s.json").read_text()


@pytest.mark.parametrize(("objective", "said"), [("scoer", "'score'"), ("umia", "no better end")])
def test_objective_without_a_better_end_is_refused(split, objective, said):
    with pytest.raises(InvalidInput, match=said):
        question(split, objective=objective)


def test_missing_optuna_is_named_with_what_installs_it(split, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InvalidInput, match=r"lethe-unlearning\[tune\]"):
        tune(question(split, search="optuna"), split, tmp_path / "s.json", budget_s=1.0)


def test_optuna_learns_from_the_study(split, quick, tmp_path):
    pytest.importorskip("optuna")
    study = tune(question(split, search="optuna"), split, tmp_path / "s.json", budget_s=60.0)
    assert study.best.value == 6.0
    assert all(1e-5 <= settings["LR"] <= 1e-1 for settings in study_settings(study))


def test_several_losses_are_minimised_together_by_nsga_iii(monkeypatch):
    optuna = pytest.importorskip("optuna")
    used = []
    sampler = optuna.samplers.NSGAIIISampler
    monkeypatch.setattr(optuna.samplers, "NSGAIIISampler", lambda **options: used.append(1) or sampler(**options))
    asked = Question(
        method="finetune",
        split_sha256="0" * 64,
        objective=tuning.SEVERAL_LOSSES,
        higher_is_better=False,
        search="optuna",
        points=1,
        runs=1,
        seed=0,
    )
    next_settings = optuna_sampler(search_ranges("finetune"), seed=0)
    study = Study(question=asked)
    for _ in range(60):
        settings = next_settings(study)
        distance = abs(math.log10(settings["LR"]) + 3)
        study.trials.append(Trial(settings=settings, value=2 * distance, losses=[distance] * 4))
    distances = [trial.value for trial in study.trials]
    assert len(used) == 59  # the first trial has nothing to learn from
    assert sum(distances[40:]) < sum(distances[:20])
    assert next_settings(study) == next_settings(Study.model_validate_json(study.model_dump_json()))
