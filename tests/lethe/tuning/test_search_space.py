"""Which values a search tries."""

import pytest

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Range, method_source
from lethe.methods.rendering import set_constants
from lethe.tuning.search_space import grid_settings, own_settings, random_settings, search_ranges

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
