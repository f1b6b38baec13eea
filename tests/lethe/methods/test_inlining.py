"""A method that imports shared functions becomes one file that does the same."""

import pytest
import torch

from lethe.errors import InvalidInput
from lethe.methods import cf_k, fcs, salun, scrub
from lethe.methods.catalogue import method_ids, method_source
from lethe.methods.inlining import inline
from lethe.methods.rendering import render
from tests.lethe.methods.tiny_data import SMALL, make_problem

METHOD = '''"""A method."""

import math
from typing import Any

from torch import nn

from lethe.methods.common import NORM_LAYERS, set_lr

LR = 0.1


def unlearning(net: nn.Module, *loaders: Any) -> float:
    return math.pi if isinstance(net, NORM_LAYERS) else set_lr(net, LR)
'''


def test_shared_functions_and_constants_are_put_into_the_file():
    text = inline(METHOD)
    assert text.index("NORM_LAYERS = (") < text.index("LR = 0.1") < text.index("def unlearning")
    assert text.index("def unlearning") < text.index("def set_lr")
    assert "from torch.nn.modules.batchnorm import _BatchNorm\n" in text
    assert "lethe" not in text
    assert "functional" not in text  # what is not used is not imported
    compile(text, "method.py", "exec")


def test_what_a_shared_function_uses_comes_along_once():
    text = method_source("fcs")
    assert text.count("def batches(") == text.count("def set_lr(") == text.count("def train(") == 1


def test_a_file_that_shares_nothing_stays_as_it_is():
    assert inline(METHOD.replace("from lethe.methods.common import NORM_LAYERS, set_lr\n", "")) != METHOD
    assert inline("import torch\n") == "import torch\n"


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(InvalidInput, match=r"lethe\.methods\.common has no 'nothing'; it has .*batches"):
        inline("from lethe.methods.common import nothing\n")


@pytest.mark.parametrize("task", ["image-classification", "causal-lm"])
def test_no_method_is_submitted_with_an_import_of_lethe(task):
    assert [method for method in method_ids(task) if "lethe.methods" in method_source(method)] == []


@pytest.mark.parametrize("module", [cf_k, fcs, salun, scrub])
def test_the_file_gives_the_weights_of_the_module(module):
    method, found = module.__name__.rpartition(".")[2], []
    namespace = {"__name__": method}
    exec(compile(method_source(method), method, "exec"), namespace)
    for unlearning in (module.unlearning, namespace["unlearning"]):
        problem = make_problem("small_cnn", sizes=SMALL, batch_size=8)
        torch.manual_seed(3)
        unlearning(problem.net, *problem.data)
        found.append(problem.net.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_preset_sets_its_constants_and_what_stands_beside_it_more():
    text = render("scrub", {"preset": "large-scale", "EPOCHS": 7})
    assert "\nALPHA = 0.001" in text
    assert "\nEPOCHS = 7" in text
    assert "\nT = 4.0" in text


def test_an_unknown_preset_is_refused():
    with pytest.raises(InvalidInput, match="method scrub has no preset 'huge'; there are small-scale, large-scale"):
        render("scrub", {"preset": "huge"})
    with pytest.raises(InvalidInput, match="method ct has no preset 'huge'; there are none"):
        render("ct", {"preset": "huge"})
