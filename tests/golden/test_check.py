"""The golden values of tests/golden/lab are recomputed, and the check notices what differs."""

from pathlib import Path

import numpy as np
import pytest

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


def changed_copy(folder: Path, name: str, key: str, change: float) -> Path:
    with np.load(LAB / f"{name}.npz") as file:
        arrays = dict(file)
    arrays[key] = arrays[key] + change
    np.savez(folder / f"{name}.npz", **arrays)
    return folder


def test_check_of_equal_values_succeeds(tmp_path, capsys):
    assert main([str(changed_copy(tmp_path, "rum_tow", "out_tow", 0.0))]) == 0
    assert "1 values, 1 to the bit, 0 beyond tolerance" in capsys.readouterr().out


def test_check_fails_beyond_the_tolerance(tmp_path, capsys):
    assert main([str(changed_copy(tmp_path, "rum_tow", "out_tow", 1e-9))]) == 1
    assert "BEYOND TOLERANCE" in capsys.readouterr().out


def test_check_allows_rounding_without_a_listing(tmp_path):
    assert main([str(changed_copy(tmp_path, "rum_tow", "out_tow", 1e-15))]) == 0


def test_check_asks_for_bits_where_the_listing_does(tmp_path):
    changed_copy(tmp_path, "rum_tow", "out_tow", 1e-15)
    (tmp_path / "VERIFIED.txt").write_text("rum_tow   tow   bits\n")
    assert main([str(tmp_path)]) == 1


def test_check_computes_other_inputs_afresh(tmp_path):
    assert main([str(changed_copy(tmp_path, "rum_tow", "in_unlearned_percent", 0.5))]) == 1


def test_check_names_a_set_it_does_not_know(tmp_path, capsys):
    np.savez(tmp_path / "unheard_of.npz", out_x=np.zeros(1))
    assert main([str(tmp_path)]) == 1
    assert "no function recomputes this set" in capsys.readouterr().out


def test_check_fails_for_a_file_without_values(tmp_path, capsys):
    np.savez(tmp_path / "rum_tow.npz", in_unlearned_percent=np.ones((2, 4)), in_retrained_percent=np.ones((2, 4)))
    assert main([str(tmp_path)]) == 1
    assert "the file holds no value" in capsys.readouterr().out


def test_check_fails_for_a_key_that_is_neither_input_nor_value(tmp_path, capsys):
    changed_copy(tmp_path, "rum_tow", "out_tow", 0.0)
    with np.load(tmp_path / "rum_tow.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "rum_tow.npz", tow=np.zeros(1), **arrays)
    assert main([str(tmp_path)]) == 1
    assert "is neither an input (in_) nor a value (out_)" in capsys.readouterr().out


def test_check_fails_for_a_file_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "rum_tow.npz").write_bytes(b"PK\x03\x04 and no more")
    assert main([str(tmp_path)]) == 1
    assert "cannot be read" in capsys.readouterr().out


def test_check_says_what_it_does_not_compare(tmp_path, capsys):
    with np.load(LAB / "mufac_nomus.npz") as file:
        arrays = dict(file)
    del arrays["out_mia"]
    np.savez(tmp_path / "mufac_nomus.npz", in_unused=np.zeros(1), **arrays)
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "in_unused" in printed
    assert "is read by nothing" in printed
    assert "is not in the file" in printed
    assert "1 values, 1 to the bit, 0 beyond tolerance" in printed
    assert "not in the folder: badt_zrf, " in printed


def test_a_tiny_p_value_is_compared_by_its_relative_difference(tmp_path):
    with np.load(LAB / "tofu_ks_tables.npz") as file:
        assert file["out_scipy_exact"].min() < 1e-15
        arrays = dict(file) | {"out_scipy_exact": file["out_scipy_exact"] * (1 + 1e-9)}
    np.savez(tmp_path / "tofu_ks_tables.npz", **arrays)
    assert main([str(tmp_path)]) == 1


def test_check_goes_on_after_a_broken_set(tmp_path, capsys):
    np.savez(tmp_path / "klom.npz", out_klom=np.zeros(1))
    changed_copy(tmp_path, "rum_tow", "out_tow", 0.0)
    assert main([str(tmp_path)]) == 1
    assert "rum_tow" in capsys.readouterr().out


def test_check_of_an_empty_folder_is_wrong_usage(tmp_path):
    assert main([str(tmp_path)]) == 2
    assert main([]) == 2
