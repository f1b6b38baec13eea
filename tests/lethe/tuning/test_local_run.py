"""A method on a prepared split, in a process of its own: a fresh one in the first test, else a fork of one."""

import pytest
from safetensors.torch import load_file

from lethe.errors import InvalidInput
from lethe.methods.rendering import render, stitch
from lethe.tuning.local_run import SplitRuns, run_on_split


def test_runs_on_a_split_are_measured_and_kept(prepared, tmp_path):
    files = {"langevin.py": render("langevin", {"EPOCHS": 1, "SIGMA": 0.1})}
    done = run_on_split(files, prepared, runs=2, weights_dir=tmp_path / "models")
    first, second = (load_file(tmp_path / "models" / f"unlearned_{run}.safetensors") for run in range(2))
    original = load_file(prepared / "visible" / "original_model.safetensors")
    squares = [
        sum(float((model[name] - original[name]).square().sum()) for name in original) for model in (first, second)
    ]
    assert [run["distance"] ** 2 for run in done.runs] == pytest.approx(squares, rel=1e-4)
    assert any((first[name] != second[name]).any() for name in original)
    assert all(0 <= run["forget_accuracy"] <= 1 and run["wall_time_s"] > 0 for run in done.runs)
    facts = done.as_json()
    assert facts["run_time_efficiency"] == done.retraining_cpu_s / done.median("cpu_time_s")
    assert [run["work_epochs"] for run in done.runs] == [1.0, 1.0]
    assert facts["work_efficiency"] == 4.0  # epochs of the split's training


def test_a_no_op_costs_no_work(prepared, quick_children):
    done = run_on_split({"original.py": render("original", {})}, prepared)
    assert done.runs[0]["work_epochs"] == 0.0
    assert done.as_json()["work_efficiency"] is None


def test_one_process_serves_several_methods(prepared, quick_children):
    with SplitRuns(prepared) as process:
        with pytest.raises(InvalidInput, match="ZeroDivisionError"):
            process.run({"bad.py": "def unlearning(*given):\n    1 / 0\n"})
        with pytest.raises(InvalidInput, match="status"):
            process.run({"gone.py": "import os\ndef unlearning(*given):\n    os._exit(7)\n"})
        assert process.run({"original.py": render("original", {})}).runs[0]["distance"] == 0.0


def test_stitched_files_run_on_a_split(prepared, quick_children):
    assert run_on_split(stitch("random_label", "langevin").files, prepared).runs[0]["distance"] > 0


def test_a_failing_method_is_one_sentence(prepared, quick_children):
    files = {"ct.py": render("ct", {})}
    with pytest.raises(InvalidInput, match="the method failed: ValueError: ct transposes square convolution kernels"):
        run_on_split(files, prepared)


def test_a_method_that_does_not_end_is_stopped(prepared, quick_children):
    files = {"slow.py": "import time\ndef unlearning(*given):\n    time.sleep(600)\n"}
    with pytest.raises(InvalidInput, match="did not end within 1 s"):
        run_on_split(files, prepared, timeout_s=1)


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="is not a prepared split"):
        run_on_split({}, tmp_path)
