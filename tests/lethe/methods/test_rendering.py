"""A method's text with other constants."""

import ast
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lethe.errors import InvalidInput
from lethe.methods import catalogue
from lethe.methods.catalogue import method_ids, method_info, method_source, method_tree
from lethe.methods.rendering import parse_settings, render, set_constants


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


@pytest.mark.parametrize("method_id", method_ids())
def test_rendering_with_the_defaults_is_the_same_program(method_id):
    settings = {constant.name: constant.value for constant in method_info(method_id).constants}
    rendered = namespace(render(method_id, settings))
    original = namespace(method_source(method_id))
    assert all(rendered[name] == original[name] for name in settings)


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
