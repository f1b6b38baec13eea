"""What the start of NVIDIA's driver answers outside and in the sandbox: the first thing to try on a machine with a GPU.

    python -m benchmarks.splits.driver_start [--number 0]

Each line is a call of libcuda with both results; 0 is success. Where they differ, the sandbox lacks something: 304
means a file or a call of the system that was refused, 100 and 999 usually a missing device file.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.sandbox.subjects import write_split
from lethe.competition.limits_section import Limits
from lethe.errors import HostFault
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import RunPolicy
from worker.host.gpu_sandbox import on_gpu

PROBE = """
import ctypes, json

def start():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"libcuda.so.1": str(error)}
    version, count, device, context = (ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p())
    calls = {
        "cuDriverGetVersion": lambda: cuda.cuDriverGetVersion(ctypes.byref(version)),
        "cuInit": lambda: cuda.cuInit(0),
        "cuDeviceGetCount": lambda: cuda.cuDeviceGetCount(ctypes.byref(count)),
        "cuDeviceGet": lambda: cuda.cuDeviceGet(ctypes.byref(device), 0),
        "cuDevicePrimaryCtxRetain": lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
    }
    results = {name: call() for name, call in calls.items()}
    return results | {"driver": version.value, "devices": count.value}

def unlearning(net, retain, forget, validation):
    print(json.dumps(start()))
"""


def outside(number: int) -> dict[str, object]:
    """Return what the calls answer in an ordinary process that is shown one GPU."""
    code = f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = '{number}'\n{PROBE}\nunlearning(0, 0, 0, 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return _answers(done.stdout) or {"process": f"ended with {done.returncode}: {done.stderr[-300:]}"}


def inside(policy: RunPolicy) -> dict[str, object]:
    """Return what the same calls answer in a run of the sandbox under `policy`."""
    with tempfile.TemporaryDirectory(prefix="lethe-driver-") as name:
        data, code = write_split(Path(name) / "visible", "mlp"), Path(name) / "stage" / "probe"
        code.mkdir(parents=True)
        (code / "submission.py").write_text(PROBE, encoding="utf-8")
        with Launcher(SandboxSpec(data_dir=data, stage_dir=code.parent, policy=policy)).start() as sandbox:
            result = sandbox.run(RunRequest(code_dir=code))
    return _answers(result.log.decode(errors="replace")) or {"run": result.verdict.message}


def _answers(printed: str) -> dict[str, object]:
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    found: dict[str, object] = json.loads(lines[-1]) if lines else {}
    return found


def main() -> None:
    """Print both columns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--number", type=int, default=0, help="of the GPU, in the order of the bus")
    number: int = parser.parse_args().number
    # The network stays on the CPU, so that what fails is the driver's own start.
    try:
        policy = replace(on_gpu(RunPolicy(wall_time_s=120, processes=256), Limits(), number=number), device="cpu")
    except HostFault as error:
        parser.error(error.detail)
    before, within = outside(number), inside(policy)
    print(f"{'':26}{'outside':>24}{'in the sandbox':>24}")
    for name in {**before, **within}:
        print(f"{name:26}{before.get(name, '-')!s:>24}{within.get(name, '-')!s:>24}")
    for mount in policy.mounts:
        print(f"shown: {mount.source} at {mount.target}")


if __name__ == "__main__":
    main()
