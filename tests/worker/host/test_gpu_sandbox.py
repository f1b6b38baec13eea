"""Which device files a run on a GPU is shown, and that a run in the sandbox computes on it."""

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from lethe.competition.sections import Limits
from lethe.errors import HostFault
from lethe.preparation.prepare import prepare_split
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import DRIVER_FOLDER, Isolation, Mount, RunPolicy
from tests.lethe.conftest import competition
from worker.host.gpu_sandbox import CUDA_HOST_MIB, device_files, driver_library, on_gpu, system_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """/dev of a container that was given the host's GPUs 2 and 10."""
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps", "nvidia2", "nvidia10", "sda"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(("number", "name"), [(0, "nvidia2"), (1, "nvidia10")])
def test_a_run_is_shown_the_driver_and_its_own_gpu(folder: Path, number: int, name: str) -> None:
    shown = device_files(number, folder=folder)
    assert shown == tuple(str(folder / file) for file in ("nvidiactl", "nvidia-uvm", name))


def test_a_gpu_that_is_not_there_is_the_hosts_fault(folder: Path) -> None:
    with pytest.raises(HostFault, match=r"GPU 2 has no device file: .* holds those of 2"):
        device_files(2, folder=folder)


def test_a_driver_that_is_not_loaded_is_the_hosts_fault(folder: Path) -> None:
    (folder / "nvidia-uvm").unlink()
    with pytest.raises(HostFault, match="nvidia-uvm is missing"):
        device_files(0, folder=folder)


@pytest.mark.parametrize(("isolation", "expected"), [("process", Isolation.RUN), ("shard", Isolation.SHARD)])
def test_the_competition_chooses_how_far_runs_are_kept_apart(folder: Path, isolation: str, expected: Isolation) -> None:
    limits = Limits.model_validate({"isolation": isolation})
    policy = on_gpu(RunPolicy(threads=3), limits, number=0, folder=folder)
    assert (policy.device, policy.isolation, policy.threads) == ("cuda", expected, 3)


def test_context_memory_is_added_to_the_runs_limit(folder: Path) -> None:
    policy = on_gpu(RunPolicy(memory_mib=500), Limits(), number=0, folder=folder)
    assert policy.memory_mib == 500 + CUDA_HOST_MIB


def test_a_run_is_shown_the_topology_file_by_file_and_no_counter(tmp_path: Path) -> None:
    nodes = ("node0", "node1")
    for name in (*(f"devices/system/node/{node}/{file}" for node in nodes for file in ("cpumap", "meminfo")), "x/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shown = system_files(tmp_path)
    assert [mount.target for mount in shown] == [f"/sys/devices/system/node/{node}/cpumap" for node in nodes]
    assert [mount.source for mount in shown] == [str(tmp_path / mount.target[5:]) for mount in shown]


def test_driver_on_the_loaders_path_is_not_shown_again() -> None:
    assert driver_library([Path("/nowhere")]) == ()


def test_driver_behind_alternatives_is_shown_with_its_folder(tmp_path: Path) -> None:
    """As Debian's packages lay it out: the name the loader finds leads through /etc, which a run has not."""
    current, alternative = tmp_path / "nvidia/current", tmp_path / "etc"
    current.mkdir(parents=True)
    alternative.mkdir()
    (current / "libcuda.so.1").symlink_to("libcuda.so.570.1")
    (current / "libcuda.so.570.1").touch()
    (alternative / "glx--libcuda.so.1").symlink_to(current / "libcuda.so.1")
    (tmp_path / "libcuda.so.1").symlink_to(alternative / "glx--libcuda.so.1")
    assert driver_library([tmp_path / "other", tmp_path]) == (Mount(str(current), DRIVER_FOLDER),)


CODE = """
import torch

def unlearning(net, retain_loader, forget_loader, val_loader):
    assert next(net.parameters()).is_cuda
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter))
    return net
"""


@pytest.mark.gpu
@pytest.mark.parametrize("isolation", ["process", "shard"])
def test_gpu_runs_depend_on_their_seeds_alone(tmp_path: Path, isolation: str) -> None:
    prepare_split(competition(n_models=4), "public", tmp_path / "split")
    stage = tmp_path / "stage" / "code"
    stage.mkdir(parents=True)
    (stage / "submission.py").write_text(textwrap.dedent(CODE))
    limits = Limits.model_validate({"isolation": isolation})
    policy = replace(on_gpu(RunPolicy(memory_mib=8192, processes=256), limits, number=0), wall_time_s=120)
    spec = SandboxSpec(data_dir=tmp_path / "split" / "visible", stage_dir=stage.parent, policy=policy)
    with Launcher(spec).start() as sandbox:
        results = [sandbox.run(RunRequest(code_dir=stage, run=run, seed=run % 2)) for run in range(4)]
    weights = [result.weights for result in results]
    assert all(weights), [result.verdict for result in results]
    assert weights[0] == weights[2]
    assert weights[1] == weights[3]
    assert weights[0] != weights[1]
