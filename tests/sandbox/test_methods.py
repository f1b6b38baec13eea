"""Every method as a participant would send it, those for language models too: in one warm sandbox each."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file

from lethe.competition.file import parse_competition
from lethe.competition.visibility import Visibility
from lethe.data.datasets.classic import open_digits
from lethe.data.files import write_json, write_tensors
from lethe.methods.catalogue import method_ids
from lethe.methods.rendering import render
from lethe.networks.builders import build
from lethe.networks.language_models import NAME
from lethe.preparation import text_task
from lethe.runtime.data_loaders import load_data, make_loaders
from lethe.submission.package import load_package
from lethe.training.pretrained import load_pretrained
from sandbox.launcher import Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy
from tests.support.tiny_models import folder_toml
from tests.support.towns import write_towns
from worker.evaluation.run_policy import entry_point

from .conftest import write_submission

SETS = {"retain": slice(0, 160), "forget": slice(160, 200), "validation": slice(200, 240)}
ORIGINAL_EPOCHS = 30  # until it fits what it is to forget
# With its default, no weight of so small a network passes the threshold.
SETTINGS: dict[str, dict[str, float]] = {"ssd": {"ALPHA": 1.0}}
POLICY = RunPolicy(wall_time_s=300, idle_time_s=10, memory_mib=512, processes=16, scratch_mib=16, log_kib=32)

Run = Callable[[str], dict[str, torch.Tensor]]
Send = Callable[[str, dict[str, float]], RunResult]


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
    """Run a method; return the tensors that it left."""
    stage = tmp_path_factory.mktemp("methods-stage")
    with Launcher(SandboxSpec(data_dir=visible, stage_dir=stage, policy=POLICY)).start() as sandbox:
        yield lambda method_id: read_weights(run_in(sandbox, stage, method_id, SETTINGS.get(method_id, {})))


def run_in(sandbox: Sandbox, stage: Path, method_id: str, constants: dict[str, float]) -> RunResult:
    source = render(method_id, constants)
    entry = load_package(source.encode(), f"{method_id}.py").entry_point.as_data()
    folder = write_submission(stage, method_id, source, file=str(entry["file"]))
    return sandbox.run(RunRequest(code_dir=folder, entry_point=entry_point(entry), run=1, seed=1))


def read_weights(result: RunResult) -> dict[str, torch.Tensor]:
    assert result.weights is not None, (result.verdict, result.log.decode(errors="replace"))
    return load(result.weights)


@pytest.mark.parametrize("method_id", method_ids())
def test_method_runs_in_the_sandbox(method_id: str, run: Run, visible: Path) -> None:
    """Whether another seed gives other weights is looked at outside, in tests/lethe/methods/test_every_method.py."""
    original, weights = load_file(visible / "original_model.safetensors"), run(method_id)
    assert form_of(weights) == form_of(original)
    assert all(tensor.isfinite().all() for tensor in weights.values())
    is_original = all(torch.equal(weights[name], tensor) for name, tensor in original.items())
    assert is_original == (method_id == "original")


def form_of(weights: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()}


TEXT_POLICY = RunPolicy(wall_time_s=60, idle_time_s=10, cpu_time_s=20, memory_mib=512, processes=16, log_kib=32)
FAST = {"LR": 1e-2, "EPOCHS": 3}


@pytest.fixture(scope="module")
def visible_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_towns(tmp_path_factory.mktemp("towns"))
    split = tmp_path_factory.mktemp("text")
    (split / "hidden").mkdir()
    visible = split / "visible"
    visible.mkdir()
    competition = parse_competition(folder_toml(root, "llama"))
    dataset = text_task.open_dataset(competition)
    text_task.write_data(split, competition, dataset, text_task.cut(dataset, competition, Visibility.PUBLIC))
    write_json(visible / "network.json", text_task.describe_network(competition, dataset))
    write_tensors(visible / "original_model.safetensors", load_pretrained(NAME, root / "model.v1").state_dict())
    return visible


@pytest.fixture(scope="module")
def send(visible_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Send]:
    stage = tmp_path_factory.mktemp("text-stage")
    with Launcher(SandboxSpec(data_dir=visible_text, stage_dir=stage, policy=TEXT_POLICY)).start() as sandbox:
        yield partial(run_in, sandbox, stage)


@pytest.mark.parametrize(
    ("method_id", "constants"),
    [("graddiff", {}), ("npo", {"LORA_RANK": 2}), ("rmu", {}), ("rmu", {"LORA_RANK": 2}), ("undial", {"LORA_RANK": 2})],
)
def test_it_ends_with_the_original_names_and_other_matrices(method_id, constants, send, visible_text):
    original = load_file(visible_text / "original_model.safetensors")
    weights = read_weights(send(method_id, FAST | constants))
    assert form_of(weights) == form_of(original)
    assert all(tensor.isfinite().all() for tensor in weights.values())
    changed = {name for name in original if not torch.equal(weights[name], original[name])}
    assert changed
    if constants:
        assert all(name.endswith("proj.weight") for name in changed)
        for name in changed:
            assert torch.linalg.matrix_rank(weights[name] - original[name], rtol=1e-3) <= constants["LORA_RANK"]
