"""A notebook runs with an older set of libraries, where one is installed: `lethe libraries install 2023`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.environments import missing_set
from sandbox.launcher import Launcher, SandboxSpec
from server.config import get_settings
from tests.sandbox.notebook.conftest import FOLDER, POLICY, Notebooks
from tests.support.programs import FUNCTION, LOOP, SCRIPT, SEEDS
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

pytestmark = pytest.mark.skipif(bool(missing_set("2023", SETS)), reason=missing_set("2023", SETS))


@pytest.fixture(scope="module")
def older(split: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebooks]:
    stage = tmp_path_factory.mktemp("older-stage")
    mounts = notebook_mounts(split, tmp_path_factory.mktemp("layout"), key="k", input_folder=FOLDER)
    policy = replace(POLICY, mounts=mounts, libraries="2023", memory_mib=2048, wall_time_s=300, idle_time_s=60)
    with Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=policy, library_sets=SETS)).start() as sandbox:
        assert sandbox.controls["libraries"]["torch"].startswith("2.1.")
        yield Notebooks(sandbox, stage, split)


def test_a_notebook_of_2023_runs_with_its_libraries(older: Notebooks) -> None:
    first, second = (older.program(OLD, "torch.manual_seed(1)" + LOOP, seed=seed, mixes=True).result for seed in (0, 1))
    assert first.weights is not None, first.log.decode()
    assert first.weights != second.weights


def test_its_models_are_compared_and_its_children_mixed(older: Notebooks) -> None:
    compared = older.program("torch.manual_seed(3)" + LOOP, compare=True)
    assert compared.result.chosen == (0, 1, 2), (compared.error_class, compared.log)
    assert compared.models[1] == compared.models[2]
    cells = (SCRIPT.format(seeds=SEEDS), "!python script.py 0\n!python script.py 1")
    first, second = (older.program(*cells, seed=seed, mixes=True).result.weights for seed in (0, 1))
    assert first is not None
    assert first != second


def test_a_function_an_error_and_cuda_as_the_cpu_are_as_elsewhere(older: Notebooks) -> None:
    assert older.program(FUNCTION, program="defines").result.weights is not None
    failed = older.program("x = torch.ones(2) @ torch.ones(3)", LOOP).result.verdict
    assert (failed.error_class, failed.exception_type, failed.line) == ("exception", "RuntimeError", 1)
    whole = older.run(CUDA, LOOP, wanted=1, stop_after=1, map_cuda=True)
    assert whole.result.chosen, whole.log
