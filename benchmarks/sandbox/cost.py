"""What the boundary costs, each figure beside a bare process measured in the same run.

Times are the best of several, since a neighbour on the machine only ever adds; the training loop is
measured in processor seconds.

python -m benchmarks.sandbox.cost [--runs 20]
"""

import contextlib
import copy
import fcntl
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared import options
from lethe.runtime.entry import Preloaded, Task, unlearned_weights
from lethe.runtime.weights_layout import WeightsLayout, read_layout
from sandbox.backends import templates
from sandbox.frame_reader import FrameReader, find_problem
from sandbox.guest.frame_format import WEIGHTS_TAG
from sandbox.guest.zygote import preload
from sandbox.host_delay import tree_usage
from sandbox.launcher import Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy
from tests.sandbox.conftest import write_split

_ROOT = Path(__file__).parents[2]
_HEADING = f"{'':58}{'bare':>10}{'sandbox':>10}{'ratio':>8}  target"
_READ_BYTES = 1 << 20  # as the launcher reads
Take = Callable[[int, WeightsLayout], None]
_INPUTS = {"n_classes": 10, "input_scale": 1 / 255, "input_shift": 0.0}
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "options": {"hidden": [16]}, "input_shape": [1, 8, 8], **_INPUTS},
    "resnet18": {"name": "resnet18", "options": {"stem": "small"}, "input_shape": [3, 32, 32], **_INPUTS},
}
_TRAINING = """
import time

import torch


def train(net, loader, steps):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.001)
    done = 0
    while True:
        for batch in loader:
            if done == steps:
                return
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"]).backward()
            optimiser.step()
            done += 1


def unlearning(net, retain, forget, validation):
    small = sum(p.numel() for p in net.parameters()) < 100_000
    steps = STEPS
    train(net, retain, 1)
    began = time.process_time()
    train(net, retain, steps)
    SAY
"""
# A tenth of a second of a processor, whatever the machine.
_TENTH = """
import time


def unlearning(net, retain, forget, validation):
    began = time.process_time()
    while time.process_time() - began < 0.1:
        pass
"""
SUBMISSIONS = {
    "short": _TRAINING.replace("STEPS", "4 if small else 0").replace("SAY", ""),
    "training": _TRAINING.replace("STEPS", "1000 if small else 2").replace("SAY", "print(time.process_time() - began)"),
    "tenth": _TENTH,
    "endless": "def unlearning(net, retain, forget, validation):\n    while True:\n        pass\n",
    "forks": "import os\n\n\ndef unlearning(net, retain, forget, validation):\n    while True:\n"
    "        try:\n            os.fork()\n        except OSError:\n            pass\n",
}


@dataclass(frozen=True)
class Figure:
    """One measurement beside its bare counterpart, seconds unless the name says otherwise."""

    name: str
    bare: float | None
    sandbox: float
    target: str = ""

    @property
    def ratio(self) -> float | None:
        return self.sandbox / self.bare if self.bare else None


def main() -> None:
    """Measure and print each figure as it comes; with `--bare DATA_DIR STAGE_DIR`, those of this process."""
    given = options(__doc__, runs=20, bare=[""])
    if given.bare[0]:
        bare_times(Path(given.bare[0]), Path(given.bare[1]), given.runs)
        return
    with tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder:
        print(_HEADING, flush=True)
        for figure in measure(Path(folder), runs=given.runs):
            print(_line(figure), flush=True)


def measure(folder: Path, *, runs: int) -> Iterator[Figure]:
    """Yield every figure."""
    stage = folder / "stage"
    for name, source in SUBMISSIONS.items():
        (stage / name).mkdir(parents=True)
        (stage / name / "submission.py").write_text(source, encoding="utf-8")
    for network, description in NETWORKS.items():
        data_dir = write_split(folder / network / "visible", network=description, examples=64)
        yield from _measure_network(network, data_dir, stage, runs=runs)
    yield from _measure_starts(folder / "mlp" / "visible", stage, runs=runs)


def _measure_starts(data_dir: Path, stage: Path, *, runs: int) -> Iterator[Figure]:
    """Yield what starts take with a new template and with one that waits, and what a run takes beyond its own work."""
    first_cpu_s, first_wall_s, _ = _started(data_dir, stage, template_is_new=True)
    starts = [_started(data_dir, stage) for _ in range(runs)]
    cpu_s = statistics.median(cpu_s for cpu_s, _, _ in starts)
    wall_s = statistics.median(wall_s for _, wall_s, _ in starts)
    yield Figure("start with a waiting template beside one with a new template, processor s", first_cpu_s, cpu_s)
    yield Figure("the same, wall s", first_wall_s, wall_s, "1")
    _, _, (run_wall_s, run_cpu_s) = _started(data_dir, stage, runs=runs)
    yield Figure("run of 0.1 s of work, wall s", 0.1, run_wall_s, "ratio 1.1")
    yield Figure("run of 0.1 s of work, processor s of all that it takes", 0.1, run_cpu_s, "ratio 1.1")


def _started(
    data_dir: Path, stage: Path, *, template_is_new: bool = False, runs: int = 0
) -> tuple[float, float, tuple[float, float]]:
    """Return the processor and wall time of one start, and those of one run; its processes are children of ours."""
    policy = RunPolicy(wall_time_s=120, memory_mib=4096)
    if template_is_new:
        _end_waiting_template()
    before_s, began = _cpu_time_s(), time.perf_counter()
    with Launcher(SandboxSpec(data_dir=data_dir, stage_dir=stage, policy=policy)).start() as sandbox:
        took = _cpu_time_s() - before_s, time.perf_counter() - began
        before_s, began = _cpu_time_s(), time.perf_counter()
        for _ in range(runs):
            _run(sandbox, stage, "tenth")
        each = max(1, runs)
        return *took, ((time.perf_counter() - began) / each, (_cpu_time_s() - before_s) / each)


def _end_waiting_template() -> None:
    templates.take(None, slot_number=None)  # no template was started so: the one that waits is ended


def _cpu_time_s() -> float:
    """Processor time of this process and all below it, also of those that ended."""
    return tree_usage(os.getpid()).cpu_time_s


def _measure_network(network: str, data_dir: Path, stage: Path, *, runs: int) -> Iterator[Figure]:
    bare = _bare(data_dir, stage, runs=runs)
    _end_waiting_template()
    began = time.perf_counter()
    policy = RunPolicy(wall_time_s=120, memory_mib=4096)
    with Launcher(SandboxSpec(data_dir=data_dir, stage_dir=stage, policy=policy)).start() as sandbox:
        start_s = time.perf_counter() - began
        cold_s = start_s + _timed(lambda: _run(sandbox, stage, "short"))[0]
        yield Figure(f"{network}: start to first weights, cold", bare["cold"], cold_s)
        short_s = min(_timed(lambda: _run(sandbox, stage, "short"))[0] for _ in range(runs))
        yield Figure(f"{network}: one short run, warm", bare["short"], short_s)
        target = "0.15" if network == "mlp" else "0.5"
        yield Figure(f"{network}: isolation of one run (the difference)", None, short_s - bare["short"], target)
        training_s = min(_inner_time_s(_run(sandbox, stage, "training")) for _ in range(3))
        yield Figure(f"{network}: training loop, processor seconds", bare["training"], training_s, "ratio 1.05")
        if network == "mlp":
            yield from _kill_figures(sandbox, stage)
            return
    model = data_dir / "original_model.safetensors"
    yield Figure(f"{network}: frame, MiB", None, model.stat().st_size / 2**20)
    yield Figure(f"{network}: frames through pipe and checks, MiB/s", *frame_rates(model, frames=runs))


def _kill_figures(sandbox: Sandbox, stage: Path) -> Iterator[Figure]:
    for what, name in (("an endless loop", "endless"), ("a fork bomb", "forks")):
        yield Figure(f"time to end {what}", None, min(_kill_time_s(sandbox, stage, name) for _ in range(5)))


def _kill_time_s(sandbox: Sandbox, stage: Path, name: str) -> float:
    """Time from asking for the end until every process is gone, including up to a tick until it is noticed."""
    asked: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        asked.append(time.perf_counter())
        stop.set()

    threading.Timer(1.0, ask).start()
    sandbox.run(RunRequest(code_dir=stage / name), should_stop=stop.is_set)
    return time.perf_counter() - asked[0]


def _bare(data_dir: Path, stage: Path, *, runs: int) -> dict[str, float]:
    """The same work in an ordinary process without any boundary."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0", "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-m", "benchmarks.sandbox.cost", "--bare", str(data_dir), str(stage), "--runs"]
    cold_s, _ = _timed(lambda: subprocess.run([*command, "0"], env=environment, check=True, capture_output=True))
    done = subprocess.run([*command, str(runs)], env=environment, check=True, capture_output=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return {**figures, "cold": cold_s}


def _run(sandbox: Sandbox, stage: Path, name: str) -> RunResult:
    result = sandbox.run(RunRequest(code_dir=stage / name, kind="sample"))
    if result.weights is None:
        raise RuntimeError(f"{name}: {result.verdict} {result.facts.host_error} {result.log.decode()}")
    return result


def _inner_time_s(result: RunResult) -> float:
    return float(result.log)


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    value = action()
    return time.perf_counter() - began, value


def _line(figure: Figure) -> str:
    bare = "" if figure.bare is None else f"{figure.bare:.3f}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    return f"{figure.name:58}{bare:>10}{figure.sandbox:>10.3f}{ratio:>8}  {figure.target}"


def bare_times(data_dir: Path, stage: Path, runs: int) -> None:
    """Run the submissions in this very process and print the best times, seconds. 0 runs: one, and no figures."""
    torch.set_num_threads(1)
    preloaded = preload(data_dir)
    short = [_run_bare(preloaded, stage / "short") for _ in range(max(1, runs))]
    if runs:
        training = [_run_bare(preloaded, stage / "training") for _ in range(3)]
        print(json.dumps({"short": min(short), "training": min(training)}))


def _run_bare(preloaded: Preloaded, code_dir: Path) -> float:
    fresh = Preloaded(data=preloaded.data, network=copy.deepcopy(preloaded.network), layout=preloaded.layout)
    code: dict[str, Any] = {"file": "submission.py", "function": "unlearning", "style": "dict", "keywords": ()}
    task = Task(submission=code_dir, **code, seed=0, threads=1, device="cpu")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        began = time.perf_counter()
        b"".join(unlearned_weights(task, fresh).pieces)
        took_s = time.perf_counter() - began
    return float(said.getvalue() or took_s)  # a submission that measures itself says what it found


def frame_rates(model: Path, *, frames: int) -> tuple[float, float]:
    """Return MiB a second of the best frame: bytes taken from the pipe and dropped, and read and checked as a run's.

    model: a safetensors file; another process writes it again and again.
    """
    content = model.read_bytes()
    layout = read_layout(content)
    with tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder:
        frame = Path(folder) / "frame"
        frame.write_bytes(WEIGHTS_TAG + content)
        bare, checked = (_best_frame_s(frame, layout, take, frames=frames) for take in (_drop, _check))
    mib = len(content) / 2**20
    return mib / bare, mib / checked


def _best_frame_s(frame: Path, layout: WeightsLayout, take: Take, *, frames: int) -> float:
    with subprocess.Popen(["cat", *[str(frame)] * frames], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        fd = writer.stdout.fileno()
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _READ_BYTES)  # as the launcher widens it
        return min(_timed(lambda: take(fd, layout))[0] for _ in range(frames))


def _drop(fd: int, layout: WeightsLayout) -> None:
    left = len(WEIGHTS_TAG) + layout.frame_bytes
    while left:
        left -= len(os.read(fd, min(_READ_BYTES, left)))


def _check(fd: int, layout: WeightsLayout) -> None:
    reader = FrameReader(layout)
    while not reader.is_over:
        reader.feed(os.read(fd, min(_READ_BYTES, reader.wanted_bytes)))
    if find_problem(reader.weights(), layout, max_abs_weight=1e9) is not None:
        raise RuntimeError("the original model's weights were not taken")


if __name__ == "__main__":
    main()
