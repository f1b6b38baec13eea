"""The registry: metrics found in their folders, every one well-formed, unknown ids answered with the nearest."""

import inspect
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from types import ModuleType

import pytest

from lethe.metrics import CaptureLevel, Side, UnknownMetric, metric, metrics
from lethe.metrics.core import registry
from lethe.metrics.core.metric_text import metric_facts
from lethe.metrics.core.registry import Need, metric_modules, metrics_of
from scripts.metric_pages import PAGE, page

MODULES = {name: import_module(name) for name in metric_modules()}


def module_with(**changes: object) -> ModuleType:
    """Return a module as a file in a family's folder would be, whose metric is accuracy_gap with changes."""
    module = ModuleType("lethe.metrics.accuracy.new_metric")
    vars(module)["METRIC"] = replace(metric("accuracy_gap"), **changes)
    return module


@pytest.mark.parametrize("name", MODULES)
def test_module_of_a_family_has_a_metric_or_serves_one(name):
    """A file that forgot its `Metric(...)` is neither, and is named here."""
    others = [inspect.getsource(module) for other, module in MODULES.items() if other != name]
    assert metrics_of(MODULES[name]) or any(name in source for source in others)


def test_every_module_is_searched():
    assert {entry.id for module in MODULES.values() for entry in metrics_of(module)} == set(metrics())
    assert {name.split(".")[2] for name in MODULES} >= {"accuracy", "membership", "outputs", "text"}


def without_docstring(unlearned, retrained): ...


def of_one_side(unlearned):
    """Take one side only."""


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"id": "Accuracy Gap"}, "needs an id of lower-case letters"),
        ({"title": ""}, "has no title"),
        ({"source": ""}, "has no source"),
        ({"formula": ""}, "has no formula"),
        ({"function": without_docstring}, "a function without a docstring"),
        ({"function": of_one_side}, "a function that takes no 'retrained'"),
        ({"needs": {"unlearned": Need("forget_acuracy")}}, "needs 'forget_acuracy', which is not an array"),
    ],
)
def test_metric_that_is_not_well_formed_is_named(changes, fault):
    assert metrics_of(module_with())
    with pytest.raises(ValueError, match=rf"lethe\.metrics\.accuracy\.new_metric: the metric .* {fault}"):
        metrics_of(module_with(**changes))


def test_an_id_of_two_metrics_is_refused(monkeypatch):
    monkeypatch.setattr(registry, "_installed", lambda: [module_with()])
    with pytest.raises(ValueError, match="new_metric: another metric has the id 'accuracy_gap'"):
        metrics.__wrapped__()


def test_unknown_id_names_the_nearest():
    with pytest.raises(UnknownMetric, match="nearest are klom"):
        metric("klomm")


def test_level_and_sides_follow_from_the_needs():
    assert metric("klom").level == CaptureLevel.CONFIDENCES
    assert metric("mia_loss").level == CaptureLevel.LOSSES
    assert metric("miau").level == CaptureLevel.LOGITS
    assert metric("relearn_time").level == CaptureLevel.WEIGHTS
    assert metric("miau").sides == (Side.UNLEARNED, Side.RETRAINED, Side.ORIGINAL)


def test_facts_name_arrays_sides_and_parameters():
    facts = metric_facts(metric("klom"))
    assert {"array": "forget_margins", "side": "retrained", "shape": "[N, S]"} in facts["arrays"]
    assert facts["parameters"] == {"bins": 20, "clip": 100.0, "floor": 1e-5}


def test_pages_of_the_documentation_are_current():
    assert PAGE.read_text(encoding="utf-8") == page(list(metrics().values())), "run: python -m scripts.metric_pages"


def test_catalogue_loads_neither_torch_nor_scikit_learn_nor_numba():
    program = (
        "import sys; from lethe.metrics import metrics; metrics();"
        "print([name for name in ('torch', 'sklearn', 'numba', 'pandas') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
