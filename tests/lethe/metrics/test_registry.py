"""The registry: every entry complete, unknown ids answered with the nearest."""

import inspect
import subprocess
import sys

import pytest

from lethe.metrics import CaptureLevel, Side, UnknownMetric, metric, metrics
from lethe.metrics.core.array_catalogue import ARRAYS
from lethe.metrics.core.derived_arrays import DERIVED
from lethe.metrics.core.metric_text import metric_facts, metric_page
from scripts.metric_pages import FOLDER, pages


@pytest.mark.parametrize("entry", metrics().values(), ids=lambda entry: entry.id)
def test_entry_is_complete(entry):
    assert entry.title
    assert entry.source
    assert entry.formula
    assert entry.unit
    assert inspect.getdoc(entry.function)
    names = {name for need in entry.needs.values() for name in need.array_names}
    assert names <= set(ARRAYS) | set(DERIVED)
    accepted = inspect.signature(entry.function).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        assert set(entry.needs) <= set(accepted)


def test_unknown_id_names_the_nearest():
    with pytest.raises(UnknownMetric, match="nearest are klom"):
        metric("klomm")


def test_level_follows_from_the_arrays():
    assert metric("klom").level == CaptureLevel.CONFIDENCES
    assert metric("mia_loss").level == CaptureLevel.LOSSES
    assert metric("miau").level == CaptureLevel.LOGITS
    assert metric("relearn_time").level == CaptureLevel.WEIGHTS


def test_sides_follow_from_the_needs():
    assert metric("miau").sides == (Side.UNLEARNED, Side.RETRAINED, Side.ORIGINAL)


def test_facts_name_arrays_sides_and_parameters():
    facts = metric_facts(metric("klom"))
    assert {"array": "forget_margins", "side": "retrained", "shape": "[N, S]"} in facts["arrays"]
    assert facts["parameters"] == {"bins": 20, "clip": 100.0, "floor": 1e-5}


def test_page_says_where_paper_and_code_differ():
    page = metric_page(metric("klom"))
    assert "## Paper and code" in page
    assert "the call swaps the arguments" in page


def test_pages_of_the_documentation_are_current():
    stored = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert stored == pages(), "run: python -m scripts.metric_pages"


def test_catalogue_loads_neither_torch_nor_scikit_learn_nor_numba():
    program = (
        "import sys; from lethe.metrics import metrics; metrics();"
        "print([name for name in ('torch', 'sklearn', 'numba', 'pandas') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
