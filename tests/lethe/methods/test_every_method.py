"""What holds of every method on every kind of network."""

import ast
import importlib
import sys
from functools import cache

import pytest
import torch
from torch import nn

from lethe.methods.catalogue import all_methods, method_ids, method_info, method_source
from lethe.submission.package import load_package
from tests.lethe.methods.tiny_data import NETWORKS, SMALL, changed, make_problem, run_method

METHODS = method_ids()
PHASES = {"unlearning", "prepare", "erase0", "erase", "repair", "finish"}

# What tests only look at; where a second run is the point, they call the functions themselves.
looked_at = cache(run_method)
untouched_network = cache(lambda kind: make_problem(kind, sizes=SMALL, batch_size=8).net)


def has_square_kernel(kind):
    return kind != "mlp"


@pytest.mark.parametrize("kind", [kind for kind in NETWORKS if kind != "resnet18"])
@pytest.mark.parametrize("method_id", METHODS)
def test_method_leaves_a_network_of_the_same_form(method_id, kind):
    if method_id == "ct" and not has_square_kernel(kind):
        pytest.skip("refused; see test_winners")
    problem = looked_at(method_id, kind)
    state = problem.net.state_dict()
    form = {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
    assert form == {name: (tensor.shape, tensor.dtype) for name, tensor in problem.before.items()}
    assert all(tensor.isfinite().all() for tensor in state.values() if tensor.is_floating_point())
    assert not problem.net.training
    assert all(parameter.requires_grad for parameter in problem.net.parameters())
    assert not any(hooks(part) for part in [*problem.net.modules(), *problem.net.parameters()])
    assert [type(module) for module in problem.net.modules()] == [type(m) for m in untouched_network(kind).modules()]


def hooks(part):
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [hook for name in names for hook in (getattr(part, name, None) or {})]


@pytest.mark.parametrize("method_id", [m.id for m in all_methods() if not m.deterministic])
def test_method_with_another_seed_gives_other_weights(method_id):
    # neggrad_clamped moves only what is nearly right already
    kind, trained = ("mlp", {"epochs": 20}) if method_id == "neggrad_clamped" else ("small_cnn", {})
    first = looked_at(method_id, kind, **trained).net.state_dict()
    same, other = (run_method(method_id, kind, seed=seed, **trained).net.state_dict() for seed in (0, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("method_id", [m.id for m in all_methods() if m.deterministic])
def test_deterministic_method_gives_one_result(method_id):
    first, other = looked_at(method_id, "small_cnn"), run_method(method_id, "small_cnn", seed=2)
    first, other = first.net.state_dict(), other.net.state_dict()
    assert all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("method_id", [m for m in METHODS if m not in {"original", "ssd"}])
def test_method_changes_weights(method_id):
    assert changed(looked_at(method_id, "small_cnn"))  # ssd has its own test, with a threshold that the data reach


@pytest.mark.parametrize("method_id", ["ct", "eu_k"])
def test_method_runs_on_a_torchvision_resnet18(method_id, monkeypatch):
    module = importlib.import_module(f"lethe.methods.{method_id}")
    if hasattr(module, "EPOCHS"):
        monkeypatch.setattr(module, "EPOCHS", 1)
        monkeypatch.setattr(module, "REPAIR_EPOCHS", 1, raising=False)
    assert changed(run_method(method_id, "resnet18"))


@pytest.mark.parametrize("method_id", METHODS)
def test_method_is_a_submission_of_dict_samples(method_id):
    package = load_package(method_source(method_id).encode(), f"{method_id}.py")
    assert (package.entry_point.function, package.entry_point.style) == ("unlearning", "dict")


@pytest.mark.parametrize("method_id", METHODS)
def test_method_imports_torch_and_the_standard_library_only(method_id):
    imported = set()
    for node in ast.walk(ast.parse(method_source(method_id))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.partition(".")[0])
    assert imported - set(sys.stdlib_module_names) <= {"torch"}


OWN = {"add_noise", "sgd", "train_tail", "unlearning"}


def test_functions_of_one_name_are_the_same_in_all_files():
    found = {}
    for method_id in METHODS:
        for node in ast.parse(method_source(method_id)).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in PHASES | OWN:
                found.setdefault(node.name, {}).setdefault(ast.unparse(node), []).append(method_id)
    assert {name: list(texts.values()) for name, texts in found.items() if len(texts) > 1} == {}


@pytest.mark.parametrize("method_id", METHODS)
def test_default_lies_in_the_search_range(method_id):
    for constant in method_info(method_id).constants:
        if constant.range is None:
            continue
        values = constant.range.values
        inside = (
            constant.value in values if constant.range.kind == "choice" else values[0] <= constant.value <= values[1]
        )
        assert inside, constant


@pytest.mark.parametrize("method_id", METHODS)
def test_declared_schedule_names_phases_that_exist(method_id):
    info = method_info(method_id)
    words = set((info.schedule or "").replace("(", " ").replace(")", " ").split()) - {"*ROUNDS", "*CYCLES"}
    assert words <= set(info.phases)


def test_method_without_a_convolution_refuses_or_runs():
    refusing = []
    for method_id in METHODS:
        try:
            looked_at(method_id, "mlp")
        except ValueError:
            refusing.append(method_id)
    assert refusing == [info.id for info in all_methods() if "convolutions" in info.needs]


def test_network_may_end_in_a_convolution():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for method_id in METHODS:
        problem = make_problem("small_cnn", sizes=SMALL, batch_size=8)
        module = importlib.import_module(f"lethe.methods.{method_id}")
        torch.manual_seed(0)
        module.unlearning(net, *problem.data)
        assert all(parameter.isfinite().all() for parameter in net.parameters()), method_id
