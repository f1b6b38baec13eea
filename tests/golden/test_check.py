"""The golden values of tests/golden/lab and audit_values are recomputed, and the checks notice what differs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden import audits
from tests.golden.check import compare_file, main

LAB = Path(__file__).parent / "lab"


@pytest.mark.parametrize("name", sorted(path.stem for path in LAB.glob("*.npz")))
def test_values_of_the_authors_programs_are_recomputed(name):
    lines = list(compare_file(LAB / f"{name}.npz"))
    assert any(line.within for line in lines), lines
    assert [line for line in lines if line.within is False] == []


def changed(values: np.ndarray) -> np.ndarray:
    """Return the values with the largest one different, by a thousandth where it is a number."""
    values = values.copy()
    if values.dtype.kind == "U":
        return np.where(np.arange(values.size) == values.size - 1, "another", values)
    flat = values.reshape(-1)
    largest = 0 if np.isnan(flat).all() else np.nanargmax(np.abs(flat))
    flat[largest] = flat[largest] + 1 if values.dtype.kind in "iu" else flat[largest] * 1.001 or 1e-3
    return values


@pytest.mark.parametrize("name", sorted(path.stem for path in LAB.glob("*.npz")))
def test_a_change_of_any_value_is_noticed(name, tmp_path):
    with np.load(LAB / f"{name}.npz") as file:
        arrays = {key: changed(file[key]) if key.startswith("out_") else file[key] for key in file.files}
    np.savez(tmp_path / f"{name}.npz", **arrays)
    assert [line for line in compare_file(tmp_path / f"{name}.npz") if line.within] == []


def changed_copy(folder: Path, name: str, **changes: Any) -> Path:
    """Write a set with other values of some keys, None: without the key."""
    with np.load(LAB / f"{name}.npz") as file:
        arrays = dict(file) | changes
    np.savez(folder / f"{name}.npz", **{key: value for key, value in arrays.items() if value is not None})
    return folder


with np.load(LAB / "rum_tow.npz") as found:
    TOW, UNLEARNED = found["out_tow"], found["in_unlearned_percent"]


@pytest.mark.parametrize(
    ("changes", "bits", "status", "said"),
    [
        ({}, False, 0, "1 values, 1 to the bit, 0 beyond tolerance"),
        ({"out_tow": TOW + 1e-9}, False, 1, "BEYOND TOLERANCE"),
        ({"out_tow": TOW + 1e-15}, False, 0, "0 beyond tolerance"),
        ({"out_tow": TOW + 1e-15}, True, 1, "BEYOND TOLERANCE"),
        ({"in_unlearned_percent": UNLEARNED + 0.5}, False, 1, "BEYOND TOLERANCE"),
        ({"out_tow": None}, False, 1, "the file holds no value"),
        ({"tow": TOW}, False, 1, "is neither an input (in_) nor a value (out_)"),
    ],
)
def test_check_tells_whether_values_are_within_their_tolerance(tmp_path, capsys, changes, bits, status, said):
    if bits:
        (tmp_path / "VERIFIED.txt").write_text("rum_tow   tow   bits\n")
    assert main([str(changed_copy(tmp_path, "rum_tow", **changes))]) == status
    assert said in capsys.readouterr().out


def test_check_names_a_set_it_does_not_know_and_goes_on_after_a_broken_one(tmp_path, capsys):
    np.savez(tmp_path / "unheard_of.npz", out_x=np.zeros(1))
    np.savez(tmp_path / "klom.npz", out_klom=np.zeros(1))
    (tmp_path / "lira.npz").write_bytes(b"PK\x03\x04 and no more")
    assert main([str(changed_copy(tmp_path, "rum_tow"))]) == 1
    printed = capsys.readouterr().out
    assert "no function recomputes this set" in printed
    assert "cannot be read" in printed
    assert "rum_tow" in printed


def test_check_says_what_it_does_not_compare(tmp_path, capsys):
    assert main([str(changed_copy(tmp_path, "mufac_nomus", out_mia=None, in_unused=np.zeros(1)))]) == 0
    printed = capsys.readouterr().out
    for said in ("in_unused", "is read by nothing", "is not in the file", "not in the folder: badt_zrf, "):
        assert said in printed
    assert "1 values, 1 to the bit, 0 beyond tolerance" in printed


def test_a_tiny_p_value_is_compared_by_its_relative_difference(tmp_path):
    with np.load(LAB / "tofu_ks_tables.npz") as file:
        exact = file["out_scipy_exact"]
    assert exact.min() < 1e-15
    assert main([str(changed_copy(tmp_path, "tofu_ks_tables", out_scipy_exact=exact * (1 + 1e-9)))]) == 1


def test_check_of_an_empty_folder_is_wrong_usage(tmp_path):
    assert main([str(tmp_path)]) == 2
    assert main([]) == 2


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
    assert [line.value_name for line in lines if line.within is False] == ["position_own_original_out"]


def test_value_that_nothing_recomputes_fails():
    lines = list(audits.compared({"new_out_value": np.zeros(1)}, *audits.SETS["tests"]))
    assert [line.within for line in lines] == [False]
