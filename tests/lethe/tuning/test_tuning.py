"""A search within its budget, stored after every step and taken up again."""

import math
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from lethe.errors import InvalidInput
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.evaluation.model_outputs import write_outputs
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.methods import finetune, original
from lethe.methods.catalogue import Range, method_source
from lethe.methods.rendering import set_constants
from lethe.runtime.data_loaders import load_data
from lethe.tuning import trial_runs
from lethe.tuning.local_run import LocalRuns
from lethe.tuning.split_run import load_method, one_run
from lethe.tuning.study import (
    Question,
    SearchPlan,
    Study,
    Trial,
    TrialScore,
    grid_settings,
    own_settings,
    random_settings,
    search_ranges,
)
from lethe.tuning.trial_runs import FRESH_SEEDS, SEVERAL_LOSSES
from lethe.tuning.tuning import make_question, optuna_sampler, tune

SOURCE = method_source("finetune")


@dataclass
class MadeUpRuns:
    """Runs of one epoch each; what they answer is the epochs that were set, and three epochs fail."""

    asked: list[tuple[int, int]] = field(default_factory=list)

    def run(self, files, *, runs, seed, outputs_file, run_limit_s):
        (text,) = files.values()
        epochs = int(next(line for line in text.splitlines() if line.startswith("EPOCHS = "))[9])
        if epochs == 3:
            raise InvalidInput("three is too many")
        self.asked.append((seed, runs))
        column = np.full(runs, float(epochs))
        cost = {"work_epochs": str(float(runs)), "cpu_time_s": str(0.5 * runs)}
        write_outputs(StoredOutputs(column[:, None], column, column), outputs_file, metadata=cost)
        return LocalRuns([], 1.0, 1.0, 1, 0.0, 0.0)


@pytest.fixture
def split(tmp_path):
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "manifest.json").write_text("{}")
    return tmp_path / "split"


@pytest.fixture
def quick(monkeypatch):
    """The value of a trial is the mean of what its runs answer."""

    def score_of(objective, split_dir, outputs):
        return TrialScore(runs=len(outputs), value=float(outputs.retain_accuracy.mean()))

    monkeypatch.setattr(trial_runs, "score_of", score_of)


def search(split, file, *, process=None, is_over=lambda: False, source=SOURCE, **changed):
    plan = SearchPlan(**{"trials": 8, "runs": 8, "halvings": 2, "points": 2} | changed)
    question = make_question("finetune", source, split, plan)
    process = process or MadeUpRuns()
    return tune(question, source, plan, split_dir=split, study_file=file, process=process, is_over=is_over)


def settings_of(study):
    return [trial.settings for trial in study.trials]


def test_half_of_the_trials_gets_twice_the_runs_and_the_best_fresh_ones(split, quick, tmp_path):
    process = MadeUpRuns()
    study = search(split, tmp_path / "s.json", process=process, runs=16)
    working = [trial for trial in study.trials if not trial.failure]
    runs = sorted((trial.scores[-1].runs for trial in working), reverse=True)
    half = -(-len(working) // 2)
    assert {score.runs for trial in working for score in trial.scores} == {4, 8, 16}
    assert sum(count >= 8 for count in runs) == half
    assert sum(count == 16 for count in runs) == -(-half // 2)
    finalists = [trial for trial in study.trials if trial.fresh]
    assert study.trials[0] in finalists
    assert study.best in finalists
    assert all(trial.fresh.runs == 16 for trial in finalists)
    assert study.best.fresh.value == max(trial.fresh.value for trial in finalists)
    assert {seed for seed, _ in process.asked if seed >= FRESH_SEEDS} == {FRESH_SEEDS}


def test_runs_are_made_once_the_first_with_the_files_own_constants(split, quick, tmp_path):
    process, ranges = MadeUpRuns(), search_ranges(SOURCE)
    study = search(split, tmp_path / "s.json", process=process)
    drawn = [random_settings(ranges, seed=0, trial=trial) for trial in range(1, 8)]
    assert settings_of(study) == [own_settings(SOURCE, ranges), *drawn]
    used = sum(t.scores[-1].runs + (t.fresh.runs if t.fresh else 0) for t in study.trials if t.scores)
    distinct = {tuple(sorted(t.settings.items())) for t in study.trials if t.scores}
    assert len(distinct) == sum(1 for t in study.trials if t.scores)
    assert sum(runs for _, runs in process.asked) == used == study.work_epochs
    before = len(process.asked)
    assert search(split, tmp_path / "s.json", process=process) == study
    assert len(process.asked) == before
    (tmp_path / "s.json").unlink()
    search(split, tmp_path / "s.json", process=process)
    assert len(process.asked) == 2 * before, "runs of a study that was removed are not used"


def test_no_trial_begins_once_the_work_is_used(split, quick, tmp_path):
    study = search(split, tmp_path / "s.json", budget_epochs=5.0, halvings=0, runs=2)
    scored = [trial for trial in study.trials if trial.scores]
    assert len(scored) == 3  # the third begins at 4 epochs
    assert study.ended


def test_search_that_is_taken_up_goes_on_as_one(split, quick, tmp_path):
    whole = search(split, tmp_path / "whole.json")
    steps = 0
    while True:
        calls = iter([False, True])
        parts = search(split, tmp_path / "parts.json", is_over=lambda calls=calls: next(calls, True))
        if parts.ended:
            break
        steps += 1
        assert steps < 100
    assert steps > 8
    assert parts == whole
    assert Study.read(tmp_path / "parts.json") == whole
    search(split, tmp_path / "more.json", trials=4)
    assert settings_of(search(split, tmp_path / "more.json")) == settings_of(whole)


def test_the_seed_chooses_the_settings_and_the_runs(split, quick, tmp_path):
    first, second = MadeUpRuns(), MadeUpRuns()
    a = search(split, tmp_path / "5.json", seed=5, process=first)
    b = search(split, tmp_path / "6.json", seed=6, process=second)
    assert settings_of(a)[0] == settings_of(b)[0]
    assert all(one != other for one, other in zip(settings_of(a)[1:], settings_of(b)[1:], strict=True))
    assert first.asked[0][0] == 5
    assert second.asked[0][0] == 6


def test_grid_ends_when_all_was_tried(split, quick, tmp_path):
    study = search(split, tmp_path / "s.json", search="grid", trials=1000)
    assert len(study.trials) == 1 + 16
    assert len({tuple(settings.values()) for settings in settings_of(study)[1:]}) == 16


@pytest.mark.slow
def test_failed_trial_is_kept_and_never_chosen(split, quick, tmp_path):
    study = search(split, tmp_path / "s.json", search="grid", points=6, trials=1000)
    failed = [trial for trial in study.trials if trial.failure]
    assert failed
    assert all(trial.failure == "three is too many" and not trial.scores for trial in failed)
    assert study.best.settings["EPOCHS"] == 6


def test_lower_value_is_better_where_the_metric_says_so(split, quick, tmp_path):
    study = search(split, tmp_path / "s.json", objective="klom")
    assert study.best.fresh.value == min(trial.fresh.value for trial in study.trials if trial.fresh)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"seed": 1}, "study of seed 0, not 1"), ({"source": SOURCE + "\n"}, "study of source_sha256")],
)
def test_study_says_what_it_used_and_another_question_is_refused(split, quick, tmp_path, changed, said):
    search(split, tmp_path / "s.json", trials=1)
    assert '"reference_tuned": true' in (tmp_path / "s.json").read_text()
    with pytest.raises(InvalidInput, match=said):
        search(split, tmp_path / "s.json", **changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "is not a study"),
        ({"source": "def unlearning(*given): ...\n"}, "no constant with a search range"),
        ({"objective": "scoer"}, "'score'"),
        ({"objective": "umia"}, "no better end"),
    ],
)
def test_what_cannot_be_searched_is_refused(split, tmp_path, changed, said):
    (tmp_path / "s.json").write_text("[1, 2]")
    with pytest.raises(InvalidInput, match=said):
        search(split, tmp_path / "s.json", **changed)


def test_missing_optuna_is_named_with_what_installs_it(split, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InvalidInput, match=r"lethe-unlearning\[tune\]"):
        search(split, tmp_path / "s.json", search="tpe")


def test_tpe_learns_from_the_study(split, quick, tmp_path):
    pytest.importorskip("optuna")
    study = search(split, tmp_path / "s.json", search="tpe", trials=40, halvings=0, runs=2)
    assert study.best.settings["EPOCHS"] == 6
    low, high = search_ranges(SOURCE)["LR"].values
    assert all(low <= settings["LR"] <= high for settings in settings_of(study)[1:])


def test_several_losses_are_minimised_together_by_nsga_iii(monkeypatch):
    optuna = pytest.importorskip("optuna")
    used = []
    sampler = optuna.samplers.NSGAIIISampler
    monkeypatch.setattr(optuna.samplers, "NSGAIIISampler", lambda **options: used.append(1) or sampler(**options))
    numbers = {"points": 1, "runs": 1, "halvings": 0, "seed": 0}
    hashes = {"source_sha256": "0" * 64, "split_sha256": "0" * 64}
    asked = Question(
        method="finetune", objective=SEVERAL_LOSSES, higher_is_better=False, search="tpe", **numbers, **hashes
    )
    next_settings = optuna_sampler(search_ranges(SOURCE), seed=0)
    study = Study(question=asked)
    for _ in range(60):
        settings = next_settings(study)
        distance = abs(math.log10(settings["LR"]) + 3)
        score = TrialScore(runs=1, value=2 * distance, losses=[distance] * 4)
        study.trials.append(Trial(settings=settings, scores=[score]))
    distances = [trial.scores[0].value for trial in study.trials]
    assert len(used) == 59  # the first trial has nothing to learn from
    assert sum(distances[40:]) < sum(distances[:20])


RANGES = {
    "LR": Range("log", (1e-4, 1.0)),
    "SHARE": Range("uniform", (0.0, 1.0)),
    "EPOCHS": Range("int", (1, 4)),
    "REWIND": Range("choice", (False, True)),
}


def test_random_values_lie_in_their_ranges_and_fill_them():
    drawn = [random_settings(RANGES, seed=0, trial=trial) for trial in range(300)]
    assert all(1e-4 <= settings["LR"] <= 1.0 for settings in drawn)
    assert 0.4 < sum(settings["LR"] < 1e-2 for settings in drawn) / 300 < 0.6  # half of the decades
    assert {settings["EPOCHS"] for settings in drawn} == {1, 2, 3, 4}
    assert {settings["REWIND"] for settings in drawn} == {False, True}
    assert random_settings(RANGES, seed=0, trial=7) == drawn[7] != drawn[8], "wherever a search is taken up"


def test_grid_holds_ends_and_every_choice_once():
    grid = list(grid_settings(RANGES, points=3))
    assert len(grid) == 3 * 3 * 3 * 2
    assert len({tuple(settings.values()) for settings in grid}) == len(grid)
    assert sorted({settings["LR"] for settings in grid}) == pytest.approx([1e-4, 1e-2, 1.0])
    assert {settings["EPOCHS"] for settings in grid} == {1, 2, 4}
    assert len(list(grid_settings({"EPOCHS": Range("int", (1, 3))}, points=10))) == 3


def test_constants_that_were_set_are_not_searched():
    source = method_source("finetune")
    assert "LR" in search_ranges(source)
    assert "LR" not in search_ranges(source, fixed=["LR"])
    assert search_ranges(method_source("original")) == {}
    own = set_constants(source, {"LR": 0.25}, owner="finetune")
    assert own_settings(own, search_ranges(own))["LR"] == 0.25
    with pytest.raises(InvalidInput, match="not Python"):
        search_ranges("def :")


@pytest.fixture(scope="module")
def loaded(prepared):
    return load_data(prepared / "visible"), SplitEvaluator.load(prepared)


def test_a_run_starts_at_the_original_and_follows_its_seed(loaded):
    facts, _ = one_run(original.unlearning, *loaded, seed=0, into=None)
    assert facts["distance"] == 0.0
    assert facts["retain_accuracy"] == loaded[1].evaluate_state(loaded[0].original_state).retain_accuracy
    same, again, other = (one_run(finetune.unlearning, *loaded, seed=seed, into=None)[0] for seed in (5, 5, 6))
    assert same["distance"] == again["distance"] > 0
    assert same["distance"] != other["distance"]


def test_forget_accuracy_is_that_of_the_unlearned_network(loaded):
    def say_one_class(net, retain_loader, forget_loader, val_loader):
        with torch.no_grad():
            list(net.parameters())[-1][3] = 1e6

    labels = loaded[0].forget.stored.labels
    facts, _ = one_run(say_one_class, *loaded, seed=0, into=None)
    assert facts["forget_accuracy"] == pytest.approx(float((labels == 3).float().mean()))


def test_method_is_loaded_from_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside_it.py").write_text("ANSWER = 42\n")
    path = tmp_path / "mine.py"
    path.write_text("from beside_it import ANSWER\ndef unlearning(*given):\n    return ANSWER\n")
    assert load_method(path)() == 42
