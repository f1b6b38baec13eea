"""The catalogue reads what each file says, and imports none."""

import subprocess
import sys

import pytest

from lethe.errors import InvalidInput, NotFound
from lethe.methods.catalogue import NEEDS, all_methods, method_ids, method_info, parse_docstring

WANTED = [
    "original",
    "finetune",
    "gradient_ascent",
    "neggradplus",
    "random_label",
    "srl",
    "amnesiac_relabel",
    "l1_sparse",
    "eu_k",
    "cf_k",
    "scrub",
    "bad_teacher",
    "ssd",
    "salun",
    "fisher",
    "influence",
    "fcs",
    "msg",
    "cfw",
    "prmq",
    "ct",
    "kde",
    "rni",
    "forget",
    "boundary_shrink",
    "unsir",
    "langevin",
    "duck",
    "ssd_adaptive",
    "neggrad_clamped",
]


def test_catalogue_holds_the_methods_of_the_papers():
    assert set(WANTED) <= set(method_ids())


def test_catalogue_is_read_without_torch():
    code = "import sys, lethe.methods.catalogue as c; c.all_methods(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("info", all_methods(), ids=lambda info: info.id)
def test_method_describes_itself_fully(info):
    assert info.summary.count(". ") >= 1
    assert len(info.summary) > 100
    assert all((info.title, info.pseudo_code, info.source, info.budget, info.differences))
    assert set(info.needs) <= set(NEEDS)


@pytest.mark.parametrize("info", all_methods("causal-lm"), ids=lambda info: info.id)
def test_preset_of_a_text_method_states_its_file(info):
    assert info.presets.keys() == info.preset_files.keys()


def test_constants_carry_value_range_and_note():
    constants = {constant.name: constant for constant in method_info("fcs").constants}
    assert constants["LR"].value == 0.001
    assert str(constants["LR"].range) == "log(1e-05, 0.1)"
    assert constants["LR"].note == "for batches of 64"
    assert constants["LAST_CONTRAST_LR"].range is None
    assert "SCHEDULE" not in constants
    assert method_info("fcs").schedule == "erase0 (erase repair)*ROUNDS"


def test_deterministic_methods_are_those_without_chance():
    assert [info.id for info in all_methods() if info.deterministic] == ["original", "ssd", "ssd_adaptive"]


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
