"""What is searched, and a trial's run on a split."""

import pytest
import torch

from lethe.errors import InvalidInput
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.methods import finetune, original
from lethe.methods.catalogue import Range, method_source
from lethe.methods.rendering import set_constants
from lethe.runtime.data_loaders import load_data
from lethe.tuning.split_run import load_method, one_run
from lethe.tuning.study import grid_settings, own_settings, random_settings, search_ranges

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


def test_trial_is_the_same_wherever_a_search_is_taken_up():
    first, again, other = (random_settings(RANGES, seed=0, trial=trial) for trial in (7, 7, 8))
    assert first == again != other


def test_grid_holds_ends_and_every_choice_once():
    grid = list(grid_settings(RANGES, points=3))
    assert len(grid) == 3 * 3 * 3 * 2
    assert len({tuple(settings.values()) for settings in grid}) == len(grid)
    assert sorted({settings["LR"] for settings in grid}) == pytest.approx([1e-4, 1e-2, 1.0])
    assert {settings["EPOCHS"] for settings in grid} == {1, 2, 4}


def test_whole_numbers_are_not_tried_twice_on_a_fine_grid():
    assert len(list(grid_settings({"EPOCHS": Range("int", (1, 3))}, points=10))) == 3


def test_constants_that_were_set_are_not_searched():
    source = method_source("finetune")
    assert "LR" in search_ranges(source)
    assert "LR" not in search_ranges(source, fixed=["LR"])
    assert search_ranges(method_source("original")) == {}


def test_own_settings_are_those_of_the_file():
    source = set_constants(method_source("finetune"), {"LR": 0.25}, owner="finetune")
    assert own_settings(source, search_ranges(source))["LR"] == 0.25


def test_source_that_is_not_python_is_refused():
    with pytest.raises(InvalidInput, match="not Python"):
        search_ranges("def :")


@pytest.fixture(scope="module")
def split(prepared):
    return load_data(prepared / "visible"), SplitEvaluator.load(prepared)


def test_returning_the_original_moves_nothing(split):
    facts, _ = one_run(original.unlearning, *split, seed=0, into=None)
    assert facts["distance"] == 0.0
    assert facts["retain_accuracy"] == split[1].evaluate_state(split[0].original_state).retain_accuracy


def test_equal_seeds_give_equal_models(split):
    same, again, other = (one_run(finetune.unlearning, *split, seed=seed, into=None)[0] for seed in (5, 5, 6))
    assert same["distance"] == again["distance"] > 0
    assert same["distance"] != other["distance"]


def test_forget_accuracy_is_that_of_the_unlearned_network(split):
    def say_one_class(net, retain_loader, forget_loader, val_loader):
        with torch.no_grad():
            list(net.parameters())[-1][3] = 1e6

    labels = split[0].forget.stored.labels
    facts, _ = one_run(say_one_class, *split, seed=0, into=None)
    assert facts["forget_accuracy"] == pytest.approx(float((labels == 3).float().mean()))


def test_method_is_loaded_from_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside_it.py").write_text("ANSWER = 42\n")
    path = tmp_path / "mine.py"
    path.write_text("from beside_it import ANSWER\ndef unlearning(*given):\n    return ANSWER\n")
    assert load_method(path)() == 42
