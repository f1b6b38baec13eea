"""A tiny split, a stage folder and started sandboxes for the tests of the boundary."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from lethe.networks import builders
from sandbox.launcher import EntryPoint, Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy

NETWORK = {
    "name": "mlp",
    "options": {"hidden": [16]},
    "input_shape": [1, 8, 8],
    "n_classes": 10,
    "input_scale": 0.0625,
    "input_shift": 0.0,
}
GOOD = """
import torch

def unlearning(net, retain, forget, validation):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in retain:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(batch["image"]), batch["age_group"]).backward()
        optimiser.step()
"""
MOUNTS = """
def unlearning(net, retain, forget, validation):
    with open("/proc/self/mountinfo") as file:
        for line in file:
            print(*line.split()[3:5])
"""
# The wall time only ends what hangs: how long a run waits for a core says nothing of it.
TEST_POLICY = RunPolicy(
    wall_time_s=300, idle_time_s=5, memory_mib=256, processes=16, scratch_mib=16, scratch_inodes=64, log_kib=32
)

DEFAULT_ENTRY = EntryPoint()
Submit = Callable[..., RunResult]
MakeOriginal = Callable[[int], Path]


def write_split(folder: Path, *, network: Mapping[str, Any] = NETWORK, examples: int | Mapping[str, int] = 60) -> Path:
    """Write a split's visible folder with random images. examples: in each set."""
    folder.mkdir(parents=True)
    (folder / "network.json").write_text(json.dumps(network), encoding="utf-8")
    torch.manual_seed(0)
    state = {name: value.contiguous() for name, value in builders.build(network).state_dict().items()}
    save_file(state, folder / "original_model.safetensors")
    for number, name in enumerate(("retain", "forget", "validation")):
        generator = torch.Generator().manual_seed(number)
        n = examples if isinstance(examples, int) else examples[name]
        shape = (n, *network["input_shape"])
        images = torch.randint(0, 17, shape, generator=generator, dtype=torch.uint8)
        labels = torch.randint(0, 10, (n,), generator=generator)
        ids = torch.arange(n)
        tensors = {"images": images, "labels": labels, "ids": ids, "persons": ids // 3}
        save_file(tensors, folder / f"{name}.safetensors")
    return folder


def write_submission(stage: Path, name: str, source: str, *, file: str = "submission.py") -> Path:
    """Write a one-file submission below the stage folder."""
    folder = stage / name
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(textwrap.dedent(source), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split(tmp_path_factory.mktemp("split") / "visible")


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stage")


@pytest.fixture(scope="session")
def sandbox(split: Path, stage: Path) -> Iterator[Sandbox]:
    """One sandbox for all tests of runs: that they cannot disturb one another is part of what is tested."""
    with Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=TEST_POLICY)).start() as started:
        yield started


@pytest.fixture
def submit(sandbox: Sandbox, stage: Path, request: pytest.FixtureRequest) -> Submit:
    """Run a submission given as text; keywords beyond `entry` go to the request."""

    def run(source: str, *, entry: EntryPoint = DEFAULT_ENTRY, **wanted: object) -> RunResult:
        folder = write_submission(stage, f"s{abs(hash((request.node.nodeid, source))):x}", source, file=entry.file)
        return sandbox.run(RunRequest(code_dir=folder, entry_point=entry, **wanted))  # type: ignore[arg-type]

    return run


@pytest.fixture
def original(stage: Path) -> Iterator[MakeOriginal]:
    """Write original model i of the test's network below the stage folder."""
    written: list[Path] = []

    def make(index: int) -> Path:
        torch.manual_seed(1000 + index)
        path = stage / f"original-{index}.safetensors"
        save_file({name: value.contiguous() for name, value in builders.build(NETWORK).state_dict().items()}, path)
        written.append(path)
        return path

    yield make
    for path in written:
        path.unlink(missing_ok=True)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses the processor."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def is_living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
