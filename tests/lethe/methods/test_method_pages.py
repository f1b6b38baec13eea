"""The generated pages are those of the files as they are."""

import importlib.util
import re
from pathlib import Path

from lethe.methods.catalogue import all_methods, method_info
from scripts.method_cost import measured, outdated_sources, with_measured

SCRIPT = Path(__file__).parents[3] / "scripts" / "method_pages.py"


def load_script():
    spec = importlib.util.spec_from_file_location("method_pages", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_current():
    assert load_script().outdated() == []


def test_an_altered_page_is_noticed(monkeypatch, tmp_path):
    script = load_script()
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    assert script.main([]) == 0
    (tmp_path / "README.md").write_text("something else")
    (tmp_path / "gone.md").write_text("of no method")
    assert script.outdated() == ["README.md", "gone.md"]
    assert script.main(["--check"]) == 1


def test_files_tell_the_measured_time_beside_the_counted_budget():
    assert outdated_sources() == {}
    assert {method.id for method in all_methods() if method.measured} == set(measured())
    assert "original" not in measured()
    assert re.fullmatch(r"the time of [0-9.]+ epochs of finetuning; .*", method_info("scrub").measured)
    assert "Measured" not in method_info("scrub").budget


def test_measured_time_is_written_once_and_replaced():
    source = '"""A: b.\n\nBudget: 1 epoch.\nDeterministic: no\n"""\n'
    first = with_measured(source, "long.")
    assert first == source.replace("Deterministic", "Measured: long.\nDeterministic")
    assert with_measured(first, "short.") == first.replace("long", "short")
    assert with_measured(first, None) == source
