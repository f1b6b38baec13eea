"""Where "cuda" is read as the CPU, usual training code runs: optimisers, saved states, factories, loaders."""

import json

import pytest

from tests.support.forked_children import run_code

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
