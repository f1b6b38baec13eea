"""Everything that wants a GPU, in one command of less than ten minutes: rates, runs, isolation, preparation, tests.

    python -m benchmarks.splits.gpu [--json FILE] [--part evaluation]

Each part is a process of its own with a limit of its own, so one that fails costs only its own rows. `--device cpu
--network small_cnn --size 16 --images 128` tries the command itself where there is no GPU.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.splits.baseline import EPOCHS, RUNS, fine_tune, random_set
from benchmarks.splits.evaluation import confidence_error, plain_pass
from benchmarks.splits.measure import describe_machine, forward_flops, matmul_flops, seconds, synchronize
from benchmarks.splits.training import plain_epochs
from lethe.competition.file import Training
from lethe.competition.limits_section import Limits
from lethe.data.files import write_json, write_tensors
from lethe.data.stored_sets import StoredSet
from lethe.device.precision import Precision, device_arithmetic
from lethe.evaluation.inference import SplitEvaluator
from lethe.networks.builders import build, to_inputs
from lethe.training.cuda_graph_training import MODELS_AT_ONCE, can_graph, train_graphed
from lethe.training.trainer import TrainingJob, train_model, untrained
from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy
from worker.host.gpu_sandbox import on_gpu

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16")
SHARES = {"retain": 1.0, "forget": 0.02, "test": 0.125}
BATCH = 64
MARK = "rows: "
RUN_CODE = """
import torch

def unlearning(net, retain_loader, forget_loader, val_loader):
    device = next(net.parameters()).device
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4)
    net.train()
    for step, batch in enumerate(retain_loader):
        if step == STEPS:
            break
        optimizer.zero_grad()
        logits = net(batch["image"].to(device))
        torch.nn.functional.cross_entropy(logits, batch["label"].to(device)).backward()
        optimizer.step()
    return net
"""


@dataclass(frozen=True)
class Row:
    """One figure of the table."""

    part: str
    what: str
    value: float
    unit: str
    target: str = ""


def evaluation(options: Namespace) -> list[Row]:
    """Images a second, as a share of the measured matmul rate of the same precision; error against float64."""
    network, sets = network_options(options), load_sets(options)
    total = sum(len(stored) for stored in sets.values())
    state = untrained(network, 0).state_dict()
    per_image = forward_flops(build(network).eval(), torch.zeros(8, *network["input_shape"])) / 8
    plain = total / seconds(lambda: plain_pass(network, sets, state, options.device), device=options.device)
    rows = [Row("evaluation", "plain PyTorch, float32", plain, "images/s")]
    for precision in precisions(options):
        evaluators = {size: make_evaluator(options, sets, precision, size) for size in (256, 1024, 4096)}
        rates = {
            size: total / seconds(lambda e=one: e.evaluate_state(state), device=options.device)  # type: ignore[misc]
            for size, one in evaluators.items()
        }
        best = max(rates, key=lambda size: rates[size])
        peak = matmul_rate(options, precision)
        error = confidence_error(evaluators[best], sets, state)
        rows += [
            Row("evaluation", f"{precision}, batches of {best}", rates[best], "images/s"),
            Row("evaluation", f"{precision}, share of matmul", 100 * rates[best] * per_image / peak, "%", ">= 40"),
            Row("evaluation", f"{precision}, largest error of a confidence", error, "nats"),
        ]
    return rows


def training(options: Namespace) -> list[Row]:
    """Images a second of the plain loop and of ours, alone and side by side; what 512 models take."""
    network, retain = network_options(options), load_sets(options)["retain"]
    per_image = 3 * forward_flops(build(network).eval(), torch.zeros(8, *network["input_shape"])) / 8
    recipe = Training(epochs=1, batch_size=BATCH, learning_rate=0.01)
    plain_s = seconds(
        lambda: plain_epochs(network, retain.images, retain.labels, recipe, options.device),
        device=options.device,
        repeats=1,
    )
    rows = [Row("training", "plain PyTorch, float32", len(retain) / plain_s, "images/s")]
    for precision in precisions(options)[-2:]:
        chosen = recipe.model_copy(update={"precision": precision})
        job = TrainingJob.on_device(network, chosen, retain.images, retain.labels, device=options.device)
        rate = len(retain) / seconds(lambda j=job: train_model(j, 0), device=options.device, repeats=1)  # type: ignore[misc]
        rates = {f"{precision}, one at a time": rate}
        for at_once in (MODELS_AT_ONCE, 2 * MODELS_AT_ONCE) if can_graph(job) else ():
            seeds = {index: index for index in range(at_once)}
            took_s = timed_once(lambda j=job, s=seeds, k=at_once: train_graphed(j, s, at_once=k), options)  # type: ignore[misc]
            rates[f"{precision}, {at_once} graphed"] = at_once * len(retain) / took_s
        best = max(rates.values())
        peak = matmul_rate(options, precision)
        rows += [Row("training", name, value, "images/s") for name, value in rates.items()]
        rows += [
            Row("training", f"{precision}, share of matmul", 100 * best * per_image / peak, "%"),
            Row("training", f"{precision}, retrained models", 3600 * best / (len(retain) * EPOCHS), "an hour"),
            Row("training", f"{precision}, {RUNS} models", RUNS * len(retain) * EPOCHS / best / 60, "min", "< 90"),
        ]
    return rows


def runs(options: Namespace) -> list[Row]:
    """One epoch of fine-tuning in the sandbox, and what surrounds it, by kind of isolation."""
    network, sets = network_options(options), load_sets(options)
    state = untrained(network, 0).state_dict()
    evaluator = make_evaluator(options, sets, "tf32" if options.device == "cuda" else "float32", 1024)
    evaluation_s = seconds(lambda: evaluator.evaluate_state(state), device=options.device)
    plain = DataLoader(
        TensorDataset(to_inputs(sets["retain"].images, network), sets["retain"].labels), batch_size=BATCH, shuffle=True
    )
    bare_s = seconds(
        lambda: fine_tune(build(network).to(options.device), plain, options.device), device=options.device, repeats=1
    )
    rows = [
        Row("runs", "evaluation of a run", evaluation_s, "s"),
        Row("runs", "plain loop and DataLoader, no sandbox", bare_s, "s"),
    ]
    with tempfile.TemporaryDirectory(prefix="lethe-gpu-") as folder:
        for isolation in ("process", "shard"):
            start_s, empty_s, run_s = in_sandbox(options, Path(folder) / isolation, network, sets, isolation)
            rows += [
                Row("runs", f"{isolation}: sandbox and first run", start_s, "s"),
                Row("runs", f"{isolation}: context and process, each run", empty_s, "s"),
                Row("runs", f"{isolation}: one epoch of fine-tuning", run_s, "s"),
                Row("runs", f"{isolation}: {RUNS} runs, evaluated beside", RUNS * run_s / 60, "min", "< 20"),
                Row("runs", f"{isolation}: {RUNS} runs, then evaluated", RUNS * (run_s + evaluation_s) / 60, "min"),
            ]
    return rows


def in_sandbox(
    options: Namespace, folder: Path, network: Mapping[str, Any], sets: Mapping[str, StoredSet], isolation: str
) -> tuple[float, float, float]:
    """Return the seconds of start and first run, of a run of one step, and of a run of one epoch."""
    visible = write_visible(folder / "visible", network, sets)
    for name, steps in (("empty", 1), ("epoch", -1)):
        code = folder / "stage" / name
        code.mkdir(parents=True)
        (code / "submission.py").write_text(RUN_CODE.replace("STEPS", str(steps)))
    policy = RunPolicy(wall_time_s=300, memory_mib=32_768, processes=256, idle_time_s=None)
    if options.device == "cuda":
        policy = on_gpu(policy, Limits.model_validate({"isolation": isolation}), number=0)
    began = time.perf_counter()
    with Launcher(SandboxSpec(data_dir=visible, stage_dir=folder / "stage", policy=policy)).start() as sandbox:
        a_run(sandbox, folder / "stage" / "empty", run=0)
        start_s = time.perf_counter() - began
        empty_s = min(a_run(sandbox, folder / "stage" / "empty", run=run) for run in range(1, 5))
        run_s = min(a_run(sandbox, folder / "stage" / "epoch", run=run) for run in range(5, 8))
    return start_s, empty_s, run_s


def a_run(sandbox: Sandbox, code: Path, *, run: int) -> float:
    began = time.perf_counter()
    result = sandbox.run(RunRequest(code_dir=code, run=run, seed=run))
    if result.weights is None:
        log = result.log.decode(errors="replace")
        raise RuntimeError(f"{result.verdict.message} {result.facts.host_error} {log[-500:]}")
    return time.perf_counter() - began


def write_visible(folder: Path, network: Mapping[str, Any], sets: Mapping[str, StoredSet]) -> Path:
    write_json(folder / "network.json", dict(network))
    write_tensors(folder / "original_model.safetensors", untrained(network, 0).state_dict())
    for name, source in (("retain", "retain"), ("forget", "forget"), ("validation", "test")):
        sets[source].write(folder / f"{name}.safetensors")
    return folder


def tests(options: Namespace) -> list[Row]:
    """The tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests/worker"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout[-6000:])
    return [Row("tests", f"pytest -m gpu on {options.device}, exit status", done.returncode, "", "0")]


PARTS: dict[str, tuple[Callable[[Namespace], list[Row]], float]] = {
    "evaluation": (evaluation, 110.0),
    "training": (training, 180.0),
    "runs": (runs, 170.0),
    "tests": (tests, 120.0),
}


def network_options(options: Namespace) -> dict[str, Any]:
    shape = [3, options.size, options.size]
    scale = {"input_scale": 1 / 64, "input_shift": 0.0}
    return {"name": options.network, "options": {}, "input_shape": shape, "n_classes": 10} | scale


def load_sets(options: Namespace) -> dict[str, StoredSet]:
    torch.manual_seed(0)
    network = network_options(options)
    return {name: random_set(network, max(8, int(share * options.images))) for name, share in SHARES.items()}


def make_evaluator(
    options: Namespace, sets: Mapping[str, StoredSet], precision: Precision, batch_size: int
) -> SplitEvaluator:
    return SplitEvaluator(
        network_options(options), sets, device=options.device, batch_size=batch_size, precision=precision
    )


def precisions(options: Namespace) -> tuple[Precision, ...]:
    return PRECISIONS if options.device == "cuda" else ("float32",)


def matmul_rate(options: Namespace, precision: Precision) -> float:
    with device_arithmetic(precision, torch.device(options.device)):
        return matmul_flops(options.device, torch.bfloat16 if precision == "bf16" else torch.float32)


def timed_once(work: Callable[[], object], options: Namespace) -> float:
    """Return the time of one call; graphs are captured again in each, so a warm-up would change nothing."""
    synchronize(options.device)
    began = time.perf_counter()
    work()
    synchronize(options.device)
    return time.perf_counter() - began


def run_part(name: str, options: Namespace) -> list[Row]:
    """Return the rows of a part, made by a process of its own; one that says what went wrong if it failed."""
    words = ["--part", name, "--device", options.device, "--network", options.network]
    words += ["--size", str(options.size), "--images", str(options.images), "--rows"]
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.splits.gpu", *words],
            stdout=subprocess.PIPE,
            text=True,
            timeout=PARTS[name][1],
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{name}: {error}", flush=True)
        return [Row(name, f"FAILED: {type(error).__name__}", time.perf_counter() - began, "s")]
    *said, last = done.stdout.rstrip().split("\n")
    print("\n".join(said), flush=True) if said else None
    rows = [Row(**row) for row in json.loads(last.removeprefix(MARK))]
    return [*rows, Row(name, "this part took", time.perf_counter() - began, "s")]


def show(rows: list[Row]) -> None:
    for row in rows:
        value = f"{row.value:,.0f}" if row.value >= 1000 else f"{row.value:.3g}"
        print(f"{row.part:12}{row.what:46}{value:>12} {row.unit:10}{row.target}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--images", type=int, default=24_000)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--part", choices=tuple(PARTS), action="append")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", action="store_true", help="print the rows for the process that asked")
    options = parser.parse_args()
    if options.rows:
        torch.set_num_threads(1)
        (name,) = options.part
        print(MARK + json.dumps([asdict(row) for row in PARTS[name][0](options)]))
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --device cpu with tiny sizes tries the command itself")
    print(describe_machine(options.device))
    rows: list[Row] = []
    for name in options.part or PARTS:
        made = [replace(row, value=float(row.value)) for row in run_part(name, options)]
        show(made)
        rows += made
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
