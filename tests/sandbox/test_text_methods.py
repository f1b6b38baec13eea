"""Methods for language models as a participant would send them: in one warm sandbox, on a model of transformers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file

from lethe.competition.file import parse_competition
from lethe.competition.visibility import Visibility
from lethe.data.files import write_json, write_tensors
from lethe.methods.rendering import render
from lethe.networks.transformers_network import NAME
from lethe.preparation import text_task
from lethe.submission.package import load_package
from lethe.training.pretrained import load_pretrained
from sandbox.launcher import Launcher, RunRequest, RunResult, SandboxSpec
from sandbox.policy import RunPolicy
from tests.support.folder_towns import folder_toml
from tests.support.towns import write_towns
from worker.evaluation.run_policy import entry_point

from .conftest import write_submission

POLICY = RunPolicy(wall_time_s=60, idle_time_s=10, cpu_time_s=20, memory_mib=512, processes=16, log_kib=32)
FAST = {"LR": 1e-2, "EPOCHS": 3}

Send = Callable[[str, dict[str, float]], RunResult]


@pytest.fixture(scope="module")
def visible(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def send(visible: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Send]:
    stage = tmp_path_factory.mktemp("text-stage")
    with Launcher(SandboxSpec(data_dir=visible, stage_dir=stage, policy=POLICY)).start() as sandbox:

        def run(method_id: str, constants: dict[str, float]) -> RunResult:
            source = render(method_id, constants)
            entry = load_package(source.encode(), f"{method_id}.py").entry_point.as_data()
            folder = write_submission(stage, method_id, source, file=str(entry["file"]))
            return sandbox.run(RunRequest(code_dir=folder, entry_point=entry_point(entry), run=1, seed=1))

        yield run


@pytest.mark.parametrize("method_id", ["graddiff", "npo", "rmu", "undial"])
@pytest.mark.parametrize("constants", [{}, {"LORA_RANK": 2}], ids=["all weights", "low rank"])
def test_it_ends_with_the_original_names_and_other_matrices(method_id, constants, send, visible):
    result = send(method_id, FAST | constants)
    assert result.weights is not None, (result.verdict, result.log.decode(errors="replace"))
    original, weights = load_file(visible / "original_model.safetensors"), load(result.weights)
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in original.items()
    }
    assert all(tensor.isfinite().all() for tensor in weights.values())
    changed = {name for name in original if not torch.equal(weights[name], original[name])}
    assert changed
    if constants:
        assert all(name.endswith("proj.weight") for name in changed)
        for name in changed:
            assert torch.linalg.matrix_rank(weights[name] - original[name], rtol=1e-3) <= constants["LORA_RANK"]
