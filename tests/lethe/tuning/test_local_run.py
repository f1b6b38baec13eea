"""A method on a prepared split, in a process of its own, and its work, counted in examples."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lethe.errors import InvalidInput
from lethe.methods.rendering import render, stitch
from lethe.tuning.local_run import SplitRuns, run_on_split
from lethe.tuning.split_run import counted_work


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


def test_one_process_serves_several_methods(prepared, quick_children):
    with SplitRuns(prepared) as process:
        with pytest.raises(InvalidInput, match="ZeroDivisionError"):
            process.run({"bad.py": "def unlearning(*given):\n    1 / 0\n"})
        with pytest.raises(InvalidInput, match="status"):
            process.run({"gone.py": "import os\ndef unlearning(*given):\n    os._exit(7)\n"})
        done = process.run({"original.py": render("original", {})})
    assert (done.runs[0]["distance"], done.runs[0]["work_epochs"]) == (0.0, 0.0)
    assert done.as_json()["work_efficiency"] is None


def test_stitched_files_run_on_a_split(prepared, quick_children):
    assert run_on_split(stitch("random_label", "langevin").files, prepared).runs[0]["distance"] > 0


def test_what_fails_is_one_sentence(prepared, quick_children, tmp_path):
    failing = {"ct.py": render("ct", {})}
    slow = {"slow.py": "import time\ndef unlearning(*given):\n    time.sleep(600)\n"}
    for files, split, said in (
        (failing, prepared, "the method failed: ValueError: ct transposes square convolution kernels"),
        (slow, prepared, "did not end within 1 s"),
        ({}, tmp_path, "is not a prepared split"),
    ):
        with pytest.raises(InvalidInput, match=said):
            run_on_split(files, split, timeout_s=1 if files is slow else None)


def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def test_passes_forward_and_back_are_counted_in_examples():
    net, images, labels = network(), torch.randn(7, 1, 2, 2), torch.zeros(7, dtype=torch.int64)
    with counted_work(net) as work:
        nn.CrossEntropyLoss()(net(images), labels).backward()
        with torch.no_grad():
            net(images[:3])
    assert (work.forward, work.backward) == (10, 7)
    assert work.epochs(8) == pytest.approx((10 + 2 * 7) / (3 * 8))
    with counted_work(net) as work:
        net.forward(images[:5]).sum().backward()
    assert (work.forward, work.backward) == pytest.approx((5, 5)), "parts called one by one are as the whole"


def test_a_second_network_counts_too_and_an_error_ends_no_count():
    net, teacher, images = network(), network(), torch.randn(5, 1, 2, 2)
    with counted_work(net) as work:
        with pytest.raises(RuntimeError):
            net(torch.randn(5, 3))
        teacher(images)
        net(images)
    assert work.forward == pytest.approx(10)


def test_nothing_is_counted_after_the_block():
    net = network()
    plain = nn.Module.__call__
    with counted_work(net) as work:
        pass
    net(torch.randn(5, 1, 2, 2))
    assert work.forward == 0
    assert nn.Module.__call__ is plain


def test_examples_of_a_vectorised_map_are_counted():
    net, images, labels = network(), torch.randn(7, 1, 2, 2), torch.zeros(7, dtype=torch.int64)

    def loss(weights, image, label):
        return nn.functional.cross_entropy(torch.func.functional_call(net, weights, (image[None],)), label[None])

    with counted_work(net) as work:
        torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(dict(net.named_parameters()), images, labels)
    assert (work.forward, work.backward) == (7, 7)
