"""What holds of every method, those for images on every kind of network."""

import ast
import sys
from functools import cache

import pytest
import torch

from lethe.methods import cfw, eu_k
from lethe.methods.catalogue import all_methods, method_ids, method_info, method_source
from lethe.submission.package import load_package
from tests.lethe.methods.tiny_data import NETWORKS, SMALL, changed, make_problem, run_method

METHODS = method_ids()
EVERY = [*METHODS, *method_ids("causal-lm")]
TIMM = {  # networks whose code no method has seen, with the names of their first and last layers
    "timm_vit": (
        "timm.models.vision_transformer import VisionTransformer as Network",
        "img_size=8, patch_size=4, embed_dim=12, depth=2, num_heads=3",
        ("patch_embed.proj.", "head."),
    ),
    "timm_convnext": (
        "timm.models.convnext import ConvNeXt as Network",
        "depths=(1, 1, 1, 1), dims=(4, 4, 8, 8), output_stride=8",
        ("stem.0.", "head.fc."),
    ),
}
KINDS = ("mlp", "small_cnn", "resnet20", "all_cnn", *TIMM)
PHASES = {"unlearning", "prepare", "erase0", "erase", "repair", "finish"}

# What tests only look at; where a second run is the point, they call the functions themselves.
looked_at = cache(run_method)
untouched_network = cache(lambda kind: make_problem(kind, sizes=SMALL, batch_size=8).net)


@pytest.fixture(autouse=True)
def _timm_networks(trusted_network_source, monkeypatch):
    for kind, (imported, options, _) in TIMM.items():
        made = f"Network(in_chans=input_shape[0], num_classes=n_classes, {options})"
        source = f"from {imported}\ndef build(input_shape, n_classes):\n    return {made}\n"
        monkeypatch.setitem(NETWORKS, kind, {"name": "module", "options": {"source": source}})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method_id", METHODS)
def test_method_leaves_a_network_of_the_same_form(method_id, kind):
    if kind in TIMM:
        pytest.importorskip("timm", reason="timm is not installed: it comes with the extra `networks`")
    if method_id == "ct" and kind == "mlp":
        pytest.skip("refused; see test_method_without_a_convolution_refuses_or_runs")
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


@pytest.mark.parametrize("kind", TIMM)
def test_first_and_last_layer_of_a_timm_network_are_found(kind, monkeypatch):
    pytest.importorskip("timm", reason="timm is not installed: it comes with the extra `networks`")
    first, last = TIMM[kind][2]
    monkeypatch.setattr(eu_k, "K", 1)
    assert changed(run_method("eu_k", kind)) == {f"{last}weight", f"{last}bias"}
    problem = make_problem(kind)
    cfw.add_noise(problem.net, 0.5)
    assert changed(problem) == {f"{first}weight"}


@pytest.mark.parametrize("method_id", EVERY)
def test_method_is_a_submission_that_imports_torch_and_the_standard_library_only(method_id):
    source = method_source(method_id)
    if method_id in METHODS:
        entry_point = load_package(source.encode(), f"{method_id}.py").entry_point
        assert (entry_point.function, entry_point.style) == ("unlearning", "dict")
    nodes = list(ast.walk(ast.parse(source)))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {"torch", *sys.stdlib_module_names}


OWN = {"add_noise", "sgd", "train_tail", "unlearning"}


def test_functions_of_one_name_are_the_same_in_all_files():
    found = {}
    for method_id in METHODS:
        for node in ast.parse(method_source(method_id)).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in PHASES | OWN:
                found.setdefault(node.name, {}).setdefault(ast.unparse(node), []).append(method_id)
    assert {name: list(texts.values()) for name, texts in found.items() if len(texts) > 1} == {}


@pytest.mark.parametrize("method_id", EVERY)
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
