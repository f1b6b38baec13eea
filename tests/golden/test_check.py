"""The golden values of tests/golden/lab are recomputed, and the check notices what differs."""

from pathlib import Path

import numpy as np
import pytest

from tests.golden.check import compare_file, compare_folder, main
from tests.golden.sets import SETS

LAB = Path(__file__).parent / "lab"
FLOAT32_ONLY = {
    ("badt_zrf", "zrf"),
    ("badt_zrf", "activation_distance"),
    ("klom", "oracle_margins"),
    ("klom", "unlearned_margins"),
}
IMAGE_SETS = (
    "badt_zrf",
    "dm_epsilon",
    "dm_logit_scaled_confidence",
    "klom",
    "miau_anchors",
    "mubench_harmonic_mean",
    "mufac_nomus",
    "rum_tow",
)


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_golden_values_are_equal_bit_for_bit(name):
    for line in compare_file(LAB / f"{name}.npz"):
        assert line.within, line
        assert line.verdict == "bits" or (line.set_name, line.value_name) in FLOAT32_ONLY, line


def test_every_stored_set_is_within_its_tolerance():
    lines = compare_folder(LAB)
    assert {path.stem for path in LAB.glob("*.npz")} <= set(SETS)
    assert [line for line in lines if not line.within] == []


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


def test_check_goes_on_after_a_broken_set(tmp_path, capsys):
    np.savez(tmp_path / "klom.npz", out_klom=np.zeros(1))
    changed_copy(tmp_path, "rum_tow", "out_tow", 0.0)
    assert main([str(tmp_path)]) == 1
    assert "rum_tow" in capsys.readouterr().out


def test_check_of_an_empty_folder_is_wrong_usage(tmp_path):
    assert main([str(tmp_path)]) == 2
    assert main([]) == 2
