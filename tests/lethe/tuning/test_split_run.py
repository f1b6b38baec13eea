"""What a run on a prepared split measures."""

import pytest
import torch

from lethe.evaluation.inference import SplitEvaluator
from lethe.methods import finetune, original
from lethe.runtime.data_loaders import load_data
from lethe.tuning.split_run import load_method, one_run


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
