"""Every method as a participant would send it: in one warm sandbox, on real scanned digits."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file

from lethe.data.datasets.classic import open_digits
from lethe.data.files import write_json, write_tensors
from lethe.methods.catalogue import method_ids, method_info
from lethe.methods.rendering import render
from lethe.networks.builders import build
from lethe.runtime.data_loaders import load_data, make_loaders
from lethe.submission.package import load_package
from sandbox.launcher import Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy
from worker.evaluation.run_policy import entry_point

from .conftest import write_submission

SETS = {"retain": slice(0, 160), "forget": slice(160, 200), "validation": slice(200, 240)}
ORIGINAL_EPOCHS = 30  # until it fits what it is to forget
SETTINGS = {"ssd": {"ALPHA": 1.0}}  # with its default, no weight of so small a network passes the threshold
POLICY = RunPolicy(wall_time_s=300, idle_time_s=10, memory_mib=512, processes=16, scratch_mib=16, log_kib=32)

Run = Callable[[str, int], dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def visible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a sandbox sees of a split of 240 digits: an original small CNN, retain, forget and validation images."""
    folder = tmp_path_factory.mktemp("digits") / "visible"
    folder.mkdir()
    write_digits(folder)
    write_original(folder)
    return folder


def write_digits(folder: Path) -> None:
    digits = open_digits({})
    network = {
        "name": "small_cnn",
        "options": {"widths": [4, 8]},
        "input_shape": list(digits.input_shape),
        "n_classes": digits.n_classes,
        "input_scale": digits.input_scale,
        "input_shift": digits.input_shift,
    }
    write_json(folder / "network.json", network)
    for name, rows in SETS.items():
        columns = {"images": digits.images, "labels": digits.labels, "persons": digits.persons}
        tensors = {column: torch.from_numpy(values[rows].copy()) for column, values in columns.items()}
        write_tensors(folder / f"{name}.safetensors", tensors | {"ids": torch.arange(rows.start, rows.stop)})
    torch.manual_seed(0)
    write_tensors(folder / "original_model.safetensors", build(network).state_dict())


def write_original(folder: Path) -> None:
    """Train the network that lies in the folder on the retain and the forget set."""
    data = load_data(folder)
    net = build(data.network)
    net.load_state_dict(data.original_state)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    loaders = make_loaders(data)
    for _ in range(ORIGINAL_EPOCHS):
        for loader in (loaders.retain, loaders.forget):
            for sample in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(sample["image"]), sample["age_group"]).backward()
                optimizer.step()
    write_tensors(folder / "original_model.safetensors", net.state_dict())


@pytest.fixture(scope="module")
def run(visible: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a method with a seed; return the tensors that it left."""
    stage = tmp_path_factory.mktemp("methods-stage")
    with Launcher(SandboxSpec(data_dir=visible, stage_dir=stage, policy=POLICY)).start() as sandbox:
        yield lambda method_id, seed: read_weights(run_in(sandbox, stage, method_id, seed))


def run_in(sandbox: Sandbox, stage: Path, method_id: str, seed: int) -> RunResult:
    source = render(method_id, SETTINGS.get(method_id, {}))
    entry = load_package(source.encode(), f"{method_id}.py").entry_point.as_data()
    folder = write_submission(stage, method_id, source, file=str(entry["file"]))
    return sandbox.run(RunRequest(code_dir=folder, entry_point=entry_point(entry), run=seed, seed=seed))


def read_weights(result: RunResult) -> dict[str, torch.Tensor]:
    assert result.weights is not None, (result.verdict, result.log.decode(errors="replace"))
    return load(result.weights)


@pytest.mark.parametrize("method_id", method_ids())
def test_method_runs_in_the_sandbox(method_id: str, run: Run, visible: Path) -> None:
    original = load_file(visible / "original_model.safetensors")
    first, second = run(method_id, 1), run(method_id, 2)
    form = {name: (tensor.shape, tensor.dtype) for name, tensor in original.items()}
    for weights in (first, second):
        assert {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()} == form
        assert all(tensor.isfinite().all() for tensor in weights.values())
        assert is_equal(weights, original) == (method_id == "original")
    assert is_equal(first, second) == method_info(method_id).deterministic


def is_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], tensor) for name, tensor in second.items())
