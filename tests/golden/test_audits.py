"""The audits agree with their authors' programs, and the comparison says where they would not."""

from pathlib import Path

import numpy as np
import pytest

from tests.golden import audits

VALUES = Path(__file__).parent / "audit_values"  # of the privacy and tests sets, without what only Lethe's paper lists


def stored(name: str) -> dict[str, np.ndarray]:
    with np.load(VALUES / f"{name}.npz", allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


@pytest.mark.parametrize("name", list(audits.SETS))
@pytest.mark.filterwarnings("ignore")
def test_values_of_the_authors_are_recomputed(name):
    lines = list(audits.compared(stored(name), *audits.SETS[name]))
    assert len(lines) > 80
    assert [line for line in lines if line.within is False] == []


def test_changed_value_is_beyond_tolerance():
    changed = {key: value for key, value in stored("tests").items() if key.startswith(("joint", "position"))}
    changed["position_own_original_out"] = changed["position_own_original_out"] + 1e-6
    lines = audits.compared(changed, *audits.SETS["tests"])
    assert [line.name for line in lines if line.within is False] == ["position_own_original_out"]


def test_value_that_nothing_recomputes_fails():
    lines = list(audits.compared({"new_out_value": np.zeros(1)}, *audits.SETS["tests"]))
    assert [line.within for line in lines] == [False]
