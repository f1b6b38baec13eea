"""Older libraries where they are installed, "cuda" as the CPU, and the comparison of notebooks with themselves."""

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.kaggle.programs import programs
from lethe.submission.notebook import to_python
from lethe.submission.package import load_package
from sandbox.environments import missing_set
from sandbox.launcher import Launcher, SandboxSpec
from server.config import get_settings
from tests.sandbox.notebook.conftest import FOLDER, POLICY, Notebooks
from tests.support.forked_children import run_code, run_module
from tests.support.notebooks import FUNCTION, LOOP, SCRIPT, SEEDS
from worker.evaluation.notebook_runs import notebook_mounts

SETS = get_settings().library_sets
USUAL = "einops torchmetrics cv2 albumentations accelerate lightning omegaconf ipywidgets wandb timm seaborn"
OLD = f"""
import importlib, numpy as np, pandas as pd, sklearn, torchvision
assert torch.__version__.startswith('2.1.') and np.__version__.startswith('1.26.') and pd.__version__.startswith('2.')
np.float_, np.product([1, 2]), np.in1d([1], [1])  # gone in NumPy 2
for name in '{USUAL}'.split():
    importlib.import_module(name)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([torch.ones(1)], lr=1), verbose=True)
"""
CUDA = """
net = nn.DataParallel(network().to('cuda'))
scaler = torch.cuda.amp.GradScaler()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with torch.cuda.amp.autocast():
    loss = net(torch.ones(1, 64).cuda()).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
"""

needs_the_set = pytest.mark.skipif(bool(missing_set("2023", SETS)), reason=missing_set("2023", SETS))


@pytest.fixture(scope="module")
def older(split: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebooks]:
    stage = tmp_path_factory.mktemp("older-stage")
    mounts = notebook_mounts(split, tmp_path_factory.mktemp("layout"), key="k", input_folder=FOLDER)
    policy = replace(POLICY, mounts=mounts, libraries="2023", memory_mib=2048, wall_time_s=300, idle_time_s=60)
    with Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=policy, library_sets=SETS)).start() as sandbox:
        assert sandbox.controls["libraries"]["torch"].startswith("2.1.")
        yield Notebooks(sandbox, stage, split)


@needs_the_set
def test_a_notebook_of_2023_runs_with_its_libraries(older: Notebooks) -> None:
    first, second = (older.program(OLD, "torch.manual_seed(1)" + LOOP, seed=seed, mixes=True).result for seed in (0, 1))
    assert first.weights is not None, first.log.decode()
    assert first.weights != second.weights


@needs_the_set
def test_its_models_are_compared_and_its_children_mixed(older: Notebooks) -> None:
    compared = older.program("torch.manual_seed(3)" + LOOP, compare=True)
    assert compared.result.chosen == (0, 1, 2), (compared.error_class, compared.log)
    assert compared.models[1] == compared.models[2]
    cells = (SCRIPT.format(seeds=SEEDS), "!python script.py 0\n!python script.py 1")
    first, second = (older.program(*cells, seed=seed, mixes=True).result.weights for seed in (0, 1))
    assert first is not None
    assert first != second


@needs_the_set
def test_a_function_an_error_and_cuda_as_the_cpu_are_as_elsewhere(older: Notebooks) -> None:
    assert older.program(FUNCTION, program="defines").result.weights is not None
    failed = older.program("x = torch.ones(2) @ torch.ones(3)", LOOP).result.verdict
    assert (failed.error_class, failed.exception_type, failed.line) == ("exception", "RuntimeError", 1)
    whole = older.run(CUDA, LOOP, wanted=1, stop_after=1, map_cuda=True)
    assert whole.result.chosen, whole.log


HEAD = """
import io
import torch, torchvision
from torch import nn
from torchvision.models import resnet18
from sandbox.guest import kaggle_cuda
kaggle_cuda.install()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
assert device.type == "cuda"
net = resnet18(num_classes=10).to(device)
x, y = torch.randn(4, 3, 32, 32).to(device, non_blocking=True), torch.zeros(4, dtype=torch.long, device="cuda")
nn.functional.cross_entropy(net(x), y).backward()
"""
CASES = {
    **{
        name: f"torch.optim.{name}(net.parameters(), lr=1e-3).step()"
        for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Adamax")
    },
    "state": "buffer = io.BytesIO(); torch.save(net.state_dict(), buffer); buffer.seek(0)\n"
    "net.load_state_dict(torch.load(buffer, map_location=device))",
    "factories": "made = (torch.zeros(2, device=device), torch.randn(2, device='cuda:0'),\n"
    "    torch.arange(3, device=device), torch.tensor([1.0], device=device), x.cuda())\n"
    "assert all(t.device.type == 'cpu' for t in made)",
    "generator": "torch.cuda.manual_seed_all(1); torch.cuda.synchronize(); torch.cuda.empty_cache()",
    "own generator": "made = torch.Generator(device=device).manual_seed(1)\n"
    "assert isinstance(made, torch.Generator) and isinstance(torch.default_generator, torch.Generator)\n"
    "torch.randn(2, generator=made, device=device)\n"
    "torch.utils.data.RandomSampler([1, 2], generator=torch.Generator())",
    "default type": "torch.set_default_tensor_type('torch.cuda.FloatTensor'); torch.zeros(2)",
    "threads": "from concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(2) as pool:\n"
    "    assert [t.device.type for t in pool.map(lambda i: torch.zeros(i, device='cuda'), range(3))] == ['cpu'] * 3",
    "details": "assert torch.cuda.get_device_properties(0).total_memory > 0; torch.cuda.memory_summary()",
    "parallel": "nn.DataParallel(net)(x)",
    "loader": "next(iter(torch.utils.data.DataLoader(torch.randn(8, 3), pin_memory=True))).to(device)",
    "properties": "torch.cuda.get_device_name(0); torch.cuda.mem_get_info(); torch.cuda.memory_allocated()",
}


EACH_IN_A_FORK = f"""
import json, os, sys, tempfile, traceback
{HEAD}
def said_by(code):
    with tempfile.TemporaryFile() as kept:
        child = os.fork()
        if child == 0:
            try:
                exec(code, globals())
            except BaseException:
                kept.write(traceback.format_exc().encode())
                kept.flush()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        kept.seek(0)
        return kept.read().decode() or (status and "ended with status " + str(status)) or ""

json.dump(dict((name, said_by(code)) for name, code in json.load(sys.stdin).items()), sys.stdout)
"""


@pytest.fixture(scope="module")
def complaints() -> dict[str, str]:
    """What each case raised. Each runs in a process of its own, which begins where the head has ended."""
    said = run_code(EACH_IN_A_FORK, standard_input=json.dumps(CASES | {"broken": "1 / 0"}))
    found: dict[str, str] = json.loads(said)
    return found


@pytest.mark.parametrize("case", CASES)
def test_code_for_a_gpu_runs(case: str, complaints: dict[str, str]) -> None:
    assert complaints[case] == ""


def test_what_a_case_raises_is_seen(complaints: dict[str, str]) -> None:
    assert "ZeroDivisionError" in complaints["broken"]


def notebook(cells: list[str]) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()


def test_there_are_more_than_a_hundred_different_programs() -> None:
    found = dict(programs())
    assert len({"\n".join(cells) for cells in found.values()}) == len(found) > 100
    for name, cells in found.items():
        for cell in cells:
            ast.parse(to_python(cell), name)
        assert load_package(notebook(cells), f"{name}.ipynb").entry_point.program == "saves"


@pytest.mark.slow
def test_the_command_keeps_models_and_writes_verdicts(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    plain = dict(programs())["plain"]
    (tmp_path / "programs" / "plain.ipynb").write_bytes(notebook(plain))
    (tmp_path / "programs" / "nothing.ipynb").write_bytes(notebook(["import torch", "torch.save({}, 'x.pth')"]))
    options = [f"--{name}={tmp_path / name}" for name in ("programs", "keep", "json")]
    assert run_module("benchmarks.kaggle.faithful", *options, timeout=600).returncode == 0
    verdicts = json.loads((tmp_path / "json").read_text())
    assert {name: found["verdict"] for name, found in verdicts.items()} == {"plain": "equal", "nothing": "refused"}
    kept = [tmp_path / "keep" / "plain" / f"{who}-0.safetensors" for who in ("honest", "lethe")]
    assert kept[0].stat().st_size == kept[1].stat().st_size > 40_000_000
