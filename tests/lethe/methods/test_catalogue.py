"""What a method's file says of itself, the one file made of it with other constants, and its page."""

import ast
import importlib.util
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lethe.errors import InvalidInput, NotFound
from lethe.methods import catalogue
from lethe.methods.catalogue import (
    all_methods,
    method_ids,
    method_info,
    method_source,
    method_tree,
    parse_docstring,
)
from lethe.methods.inlining import inline
from lethe.methods.rendering import parse_settings, render, set_constants
from scripts.method_cost import measured, outdated_sources, with_measured


def test_catalogue_is_read_without_torch():
    code = "import sys, lethe.methods.catalogue as c; c.all_methods(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_preset_of_a_text_method_states_its_file():
    assert all(info.presets.keys() == info.preset_files.keys() for info in all_methods("causal-lm"))


def test_constants_carry_value_range_and_note():
    constants = {constant.name: constant for constant in method_info("fcs").constants}
    assert constants["LR"].value == 0.001
    assert str(constants["LR"].range) == "log(1e-05, 0.1)"
    assert constants["LR"].note == "for batches of 64"
    assert constants["LAST_CONTRAST_LR"].range is None
    assert "SCHEDULE" not in constants
    assert method_info("fcs").schedule == "erase0 (erase repair)*ROUNDS"


def test_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(NotFound, match="no method 'scrup'; there are scrub"):
        method_info("scrup")


def test_docstring_without_a_section_is_refused():
    with pytest.raises(InvalidInput, match="no section 'Budget'"):
        parse_docstring("Title\n\nText.\n\nPseudo-code:\n    x\n\nSource: y\nDeterministic: no", "mine")


def test_method_info_becomes_plain_values():
    plain = method_info("ssd").as_json()
    assert plain["needs"] == ("forget images", "forget labels")
    assert {"name": "ALPHA", "value": 10.0, "range": "log(1, 100)", "note": ""} in [dict(c) for c in plain["constants"]]


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


def namespace(text):
    values = {}
    exec(text, values)
    return values


def test_rendering_replaces_only_what_is_set():
    text = render("neggradplus", {"LR": "0.5", "EPOCHS": "3", "TRAIN": "true"})
    values = namespace(text)
    assert (values["LR"], values["EPOCHS"], values["TRAIN"], values["ALPHA"]) == (0.5, 3, True, 0.95)
    assert "# lethe: tune LR = log(1e-5, 1e-1)" in text
    assert [line for line in text.splitlines() if not line.startswith(("LR", "EPOCHS", "TRAIN"))] == [
        line for line in method_source("neggradplus").splitlines() if not line.startswith(("LR", "EPOCHS", "TRAIN"))
    ]


def test_a_whole_number_is_taken_for_a_fraction():
    assert namespace(render("ssd", {"ALPHA": 5}))["ALPHA"] == 5.0


def test_a_text_constant_takes_its_choices():
    assert namespace(render("cfw", {"NOISE": "all"}))["NOISE"] == "all"


@pytest.mark.parametrize(
    ("method_id", "name", "value", "message"),
    [
        ("finetune", "LR", "fast", "LR must be a finite number, was 'fast'"),
        ("finetune", "LR", "nan", "LR must be a finite number, was 'nan'"),
        ("finetune", "EPOCHS", "1.5", "EPOCHS must be a whole number, was '1.5'"),
        ("finetune", "EPOCHS", 2.0, "EPOCHS must be a whole number, was 2.0"),
        ("finetune", "EPOCHS", True, "EPOCHS must be a whole number, was True"),
        ("scrub", "REWIND", "maybe", "REWIND must be one of False, True, was 'maybe'"),
        ("cfw", "NOISE", "none", "NOISE must be one of 'first', 'all', was 'none'"),
        ("cfw", "NOISE", 'x"\nimport os', "NOISE must be one of"),
        ("finetune", "SCHEDULE", "erase", "method finetune has no constant 'SCHEDULE'"),
        ("finetune", "LEARNING_RATE", "1", "has no constant 'LEARNING_RATE'; there are LR, EPOCHS"),
    ],
)
def test_rendering_refuses_what_does_not_fit(method_id, name, value, message):
    with pytest.raises(InvalidInput) as error:
        render(method_id, {name: value})
    assert message in str(error.value)


def test_settings_are_name_and_value():
    assert parse_settings(["LR=0.1", " EPOCHS = 2 "]) == {"LR": "0.1", "EPOCHS": "2"}


@pytest.mark.parametrize("pairs", [["LR"], ["=3"], ["LR="], ["LR=1", "LR=2"]])
def test_settings_of_another_form_are_refused(pairs):
    with pytest.raises(InvalidInput):
        parse_settings(pairs)


def test_one_thread_at_a_time_parses(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, parse = [], [], ast.parse

    def slow(text: str, **options: Any) -> ast.Module:
        inside.append(text)
        most.append(len(inside))
        time.sleep(0.002)
        inside.pop()
        return parse(text, **options)

    method_tree.cache_clear()
    monkeypatch.setattr(catalogue.ast, "parse", slow)
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda _: [method_tree(each) for each in method_ids()], range(8)))
    assert max(most) == 1
    assert {len(one) for one in trees} == {len(method_ids())}


def test_constants_of_any_source_are_set():
    source = (
        'é = 1; RATE = 0.5  # of é\nNAME = "a"\nLONG = (\n    2\n)\n\x0c\nSTEPS = 3\n\n\n'
        "def unlearning(*_):\n    RATE = 9\n"
    )
    changed = set_constants(source, {"RATE": 2, "NAME": "b'", "STEPS": "7"}, owner="mine.py")
    assert changed == source.replace("0.5", "2.0").replace('"a"', '"b\'"').replace("STEPS = 3", "STEPS = 7")
    with pytest.raises(InvalidInput, match=r"mine\.py has no constant 'LONG'; there are é, RATE, NAME, STEPS"):
        set_constants(source, {"LONG": 1}, owner="mine.py")
    with pytest.raises(InvalidInput, match=r"mine\.py is not Python"):
        set_constants("def", {"RATE": 1}, owner="mine.py")


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
